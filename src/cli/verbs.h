/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs: one function each, in a file of its name. argv[0] is the verb; the result is the exit
 * code (0 fine, 1 the work failed, 2 wrong usage or not available on this machine). */
#ifndef COBORD_CLI_VERBS_H
#define COBORD_CLI_VERBS_H

/* name, one line of help; in the order in which `cobord help` lists them. */
#define VERBS_LIST(X)                                       \
    X(pull, "download a model and make it ready")           \
    X(list, "show the models that are here, and the zoo")   \
    X(rm, "remove a model from the cache")                  \
    X(run, "answer a prompt, or chat at the terminal")      \
    X(serve, "answer OpenAI's and Ollama's API over HTTP")  \
    X(node, "run one node of a cluster")                    \
    X(status, "show a running cluster")                     \
    X(up, "run a whole cluster on this machine")            \
    X(plan, "show who holds what, and whether it fits")     \
    X(deploy, "put a cluster on Cloudflare Workers")        \
    X(bench, "measure speed and peak memory")               \
    X(logits, "print the model's numbers for given tokens") \
    X(tokenize, "text to token ids")    \
    X(detokenize, "token ids to text")  \
    X(encode, "make a knot of a GGUF file")                 \
    X(repair, "rewrite a knot of an early encoder")         \
    X(info, "show what a model file holds")                 \
    X(verify, "check every hash and range of a knot")       \
    X(synth, "make a knot of random weights, for capacity tests")

#define VERBS_DECLARE(name, help) int cli_##name(int argc, char **argv);
VERBS_LIST(VERBS_DECLARE)
#undef VERBS_DECLARE

#endif
