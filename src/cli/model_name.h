/* SPDX-License-Identifier: Apache-2.0 */
/* The name of a model in answers: the last part of what it was called, without its suffix, in plain characters. */
#ifndef COBORD_CLI_MODEL_NAME_H
#define COBORD_CLI_MODEL_NAME_H

enum { MODEL_NAME_BYTES = 96 };

void model_name_of(const char *model, char out[MODEL_NAME_BYTES]);

#endif
