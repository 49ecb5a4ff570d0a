/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs: one function and one explanation each, in a file of its name. argv[0] is the verb; the result is the exit
 * code (0 fine, 1 the work failed, 2 wrong usage or not available on this machine, 128 + signal). */
#ifndef COBORD_CLI_VERBS_H
#define COBORD_CLI_VERBS_H

#include <stdbool.h>
#include <stdio.h>

#include "cli/options.h"

/* name, group, one line of help; in the order in which `cobord help` lists them. */
#define VERBS_LIST(X)                                                     \
    X(run, USE, "answer a prompt, or chat at the terminal")               \
    X(serve, SERVE, "answer OpenAI's and Ollama's API over HTTP")         \
    X(up, SERVE, "run a whole cluster on this machine")                   \
    X(node, SERVE, "run one node of a cluster")                           \
    X(deploy, SERVE, "put a cluster on Cloudflare Workers")               \
    X(pull, MODELS, "download a model and make it ready")                 \
    X(list, MODELS, "show the models that are here, and the zoo")         \
    X(rm, MODELS, "remove a model from the cache")                        \
    X(encode, MODELS, "make a knot of a GGUF file")                       \
    X(repair, MODELS, "rewrite a knot of an early encoder")               \
    X(synth, MODELS, "make a knot of random weights, for capacity tests") \
    X(info, INSPECT, "show what a model file holds")                      \
    X(verify, INSPECT, "check every hash and range of a knot")            \
    X(tokenize, INSPECT, "text to token ids")                             \
    X(detokenize, INSPECT, "token ids to text")                           \
    X(logits, INSPECT, "print the model's numbers for given tokens")      \
    X(bench, INSPECT, "measure speed and peak memory")                    \
    X(plan, OPERATE, "show who holds what, and whether it fits")          \
    X(status, OPERATE, "show a running cluster")                          \
    X(doctor, OPERATE, "say what is fine here, and what is not")          \
    X(ready, OPERATE, "say by exit code whether a server is ready")       \
    X(keys, OPERATE, "make, list and revoke API keys")                    \
    X(completion, OPERATE, "print completions for bash, zsh or fish")     \
    X(man, OPERATE, "print the manual page")

typedef enum VerbGroup {
    VERB_USE,
    VERB_SERVE,
    VERB_MODELS,
    VERB_INSPECT,
    VERB_OPERATE,
    VERB_GROUPS
} VerbGroup;

typedef struct Verb {
    const char *name;
    VerbGroup group;
    const char *help;
    int (*function)(int argc, char **argv);
    const OptionVerb *options;
} Verb;

/* Ends at a name of NULL. */
extern const Verb verbs_table[];

const char *verbs_group_name(VerbGroup group);

/* NULL when there is none of that name. */
const Verb *verbs_find(const char *name);

/* The verb that was probably meant, other programs' words for it included; NULL: none. */
const Verb *verbs_near(const char *written);

/* The page of `cobord help`. */
void verbs_overview(FILE *out);

#define VERBS_DECLARE(name, group, help)   \
    int cli_##name(int argc, char **argv); \
    extern const OptionVerb name##_verb;
VERBS_LIST(VERBS_DECLARE)
#undef VERBS_DECLARE

#endif
