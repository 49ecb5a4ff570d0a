/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses as small numbers: one for a network's host, and nobody knows who else has it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "host/http_state.h"

static uint32_t number(uint64_t seed, const char *text)
{
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, text, &four.sin_addr) == 1)
        return http_crowd_address(seed, (const struct sockaddr *)(const void *)&four);
    assert_int_equal(inet_pton(AF_INET6, text, &six.sin6_addr), 1);
    return http_crowd_address(seed, (const struct sockaddr *)(const void *)&six);
}

static void one_host_has_one_number(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 100; seed++) {
        assert_int_equal(number(seed, "10.0.0.7"), number(seed, "::ffff:10.0.0.7"));
        assert_int_equal(number(seed, "2001:db8::1"), number(seed, "2001:db8::ffff:2"));
        assert_int_equal(http_crowd_address(seed, NULL), 0);
    }
    assert_true(number(1, "10.0.0.7") != number(1, "10.0.0.8"));
    assert_true(number(1, "2001:db8::1") != number(1, "2001:db8:0:1::1"));
}

/* Addresses chosen to share a number under one seed are spread under another. */
static void a_seed_spreads_who_met(void **state)
{
    (void)state;
    enum { CHOSEN = 64 };
    uint32_t victim = number(1, "192.0.2.1"), found = 0, still = 0;
    for (uint32_t i = 0; found < CHOSEN; i++) {
        struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr = {htonl(0x0a000000 + i)}};
        const struct sockaddr *address = (const struct sockaddr *)(const void *)&four;
        assert_in_range(i, 0, 1 << 20);
        if (http_crowd_address(1, address) != victim) continue;
        found++;
        still += http_crowd_address(2, address) == number(2, "192.0.2.1");
    }
    assert_in_range(still, 0, 4);
}

/* Two servers of one process differ, so those of two processes do. */
static void nobody_knows_the_seed(void **state)
{
    (void)state;
    HttpServer *servers[2];
    for (int i = 0; i < 2; i++) {
        Why why = {{0}};
        HttpServerOptions options = {.listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
                                     .connections_max = 8,
                                     .body_bytes_max = 1 << 10,
                                     .bodies_bytes_max = 1 << 10};
        struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
        const struct sockaddr *address = (const struct sockaddr *)(const void *)&any;
        assert_int_equal(bind(options.listen_fd, address, sizeof any), 0);
        assert_int_equal(listen(options.listen_fd, 8), 0);
        if (http_server_open(&options, &servers[i], &why) != OK) fail_msg("%s", why.text);
    }
    assert_true(servers[0]->crowd_seed != servers[1]->crowd_seed);
    for (int i = 0; i < 2; i++) http_server_close(servers[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_host_has_one_number),
        cmocka_unit_test(a_seed_spreads_who_met),
        cmocka_unit_test(nobody_knows_the_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
