/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "api/node_gate.h"

static const NodeGateRoute routes[] = {
    {"POST", "/forward"}, {"DELETE", "/sessions/"}, {"GET", "/knot"}};
static const NodeGate open_gate = {routes, 3, NULL, 100},
                      closed_gate = {routes, 3, "sesame-sesame", 100};

static NodeGatePass pass_of(const NodeGate *gate, const char *method, const char *path,
                            const char *authorization, uint64_t announced)
{
    NodeGateHead head = {method, path, authorization, announced};
    NodeGatePass pass;
    node_gate_look(gate, &head, &pass);
    return pass;
}

static void refused(const NodeGate *gate, const char *method, const char *path, unsigned status,
                    const char *allow, const char *why)
{
    NodeGatePass pass = pass_of(gate, method, path, NULL, 0);
    assert_int_equal(pass.kind, NODE_GATE_REFUSED);
    assert_int_equal(pass.status, status);
    assert_string_equal(pass.why.text, why);
    if (allow) assert_string_equal(pass.allow, allow);
    else assert_null(pass.allow);
}

static void routes_and_tails(void **state)
{
    (void)state;
    NodeGatePass pass = pass_of(&open_gate, "POST", "/forward", NULL, 100);
    assert_int_equal(pass.kind, NODE_GATE_ROUTE);
    assert_int_equal(pass.route, 0);
    assert_string_equal(pass.tail, "");
    pass = pass_of(&open_gate, "DELETE", "/sessions/12", NULL, 0);
    assert_int_equal(pass.route, 1);
    assert_string_equal(pass.tail, "12");
    refused(&open_gate, "POST", "/forward/", 404, NULL, "no such path: /forward/");
    refused(&open_gate, "GET", "", 404, NULL, "no such path: ");
    refused(&open_gate, "GET", "/forward", 405, "POST", "/forward takes POST, not GET");
    refused(&open_gate, "HEAD", "/knot", 405, "GET", "/knot takes GET, not HEAD");
    pass = pass_of(&open_gate, "POST", "/forward", NULL, 101);
    assert_int_equal(pass.status, 413);
    assert_string_equal(pass.why.text, "the body has more than 100 bytes");
}

static void its_own(void **state)
{
    (void)state;
    assert_int_equal(pass_of(&closed_gate, "GET", "/health", NULL, 0).kind, NODE_GATE_HEALTH);
    assert_int_equal(pass_of(&closed_gate, "HEAD", "/health", NULL, 0).kind, NODE_GATE_HEALTH);
    assert_int_equal(pass_of(&open_gate, "GET", "/ready", NULL, 0).kind, NODE_GATE_READY);
    assert_int_equal(pass_of(&open_gate, "GET", "/metrics", NULL, 0).kind, NODE_GATE_METRICS);
    refused(&closed_gate, "POST", "/health", 405, "GET, HEAD", "/health takes GET, HEAD, not POST");
    refused(&open_gate, "PUT", "/ready", 405, "GET, HEAD", "/ready takes GET, HEAD, not PUT");
}

static void keys(void **state)
{
    (void)state;
    static const char *const paths[] = {"/ready", "/metrics", "/forward", "/nothing", ""};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        refused(&closed_gate, "POST", paths[i], 401, NULL,
                "Authorization: Bearer KEY is missing, or has another key");
    assert_int_equal(pass_of(&closed_gate, "POST", "/forward", "Bearer sesame-sesame", 0).kind,
                     NODE_GATE_ROUTE);
    assert_int_equal(pass_of(&closed_gate, "POST", "/forward", "Bearer sesame", 0).status, 401);
}

typedef struct Target {
    const char *target, *path, *query;
} Target;

static void targets(void **state)
{
    (void)state;
    static const Target all[] = {
        {"/forward", "/forward", ""},
        {"/tensor/%62lk", "/tensor/blk", ""},
        {"/a%2fb%2F", "/a/b/", ""},
        {"/a+b%", "/a+b%", ""},
        {"/a%4", "/a%4", ""},
        {"/a%zz%41", "/a%zzA", ""},
        {"/a%00b", "/a", ""},
        {"/x/../health", "/x/../health", ""},
        {"/knot?bytes=0-9", "/knot", "bytes=0-9"},
        {"/knot?size", "/knot", "size"},
        {"/knot?a+b=c%2Bd&e", "/knot", "a b=c+d&e"},
        {"/knot?a=%26&b=", "/knot", "a=&&b="},
        {"/knot?a?b", "/knot", "a?b"},
        {"?", "", ""},
    };
    char path[NODE_GATE_PATH_BYTES], query[NODE_GATE_QUERY_BYTES];
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        assert_true(node_gate_decode(all[i].target, strlen(all[i].target), path, query));
        assert_string_equal(path, all[i].path);
        assert_string_equal(query, all[i].query);
    }
}

static void long_targets(void **state)
{
    (void)state;
    char path[NODE_GATE_PATH_BYTES], query[NODE_GATE_QUERY_BYTES], target[2048];
    memset(target, 'a', sizeof target);
    target[0] = '/';
    assert_true(node_gate_decode(target, NODE_GATE_PATH_BYTES - 1, path, query));
    assert_int_equal(strlen(path), NODE_GATE_PATH_BYTES - 1);
    assert_true(node_gate_decode(target, NODE_GATE_PATH_BYTES, path, query));
    assert_string_equal(path, "");
    target[1] = '?';
    assert_true(node_gate_decode(target, NODE_GATE_QUERY_BYTES + 1, path, query));
    assert_int_equal(strlen(query), NODE_GATE_QUERY_BYTES - 1);
    assert_false(node_gate_decode(target, NODE_GATE_QUERY_BYTES + 2, path, query));
}

static void sessions(void **state)
{
    (void)state;
    uint64_t session;
    Why why;
    assert_int_equal(node_gate_session("18446744073709551615", &session, &why), OK);
    assert_int_equal(session, UINT64_MAX);
    static const char *const bad[] = {
        "", "0", "-1", "+1", " 1", "1 ", "1x", "18446744073709551616", "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(node_gate_session(bad[i], &session, &why), ERR_USAGE);
    assert_string_equal(why.text, "session 99999999999999999999 is no number from 1 to 2^64 - 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(routes_and_tails),
        cmocka_unit_test(its_own),
        cmocka_unit_test(keys),
        cmocka_unit_test(targets),
        cmocka_unit_test(long_targets),
        cmocka_unit_test(sessions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
