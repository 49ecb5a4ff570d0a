/* SPDX-License-Identifier: Apache-2.0 */
/* A parsed JSON value, written again. Without memory: recursion as deep as json_scan.h lets a body nest. */
#ifndef COBORD_API_JSON_TREE_H
#define COBORD_API_JSON_TREE_H

#include <yyjson.h>

#include "api/json_writer.h"

/* NULL is null. Numbers are written as the parser understood them. */
void json_tree_write(JsonWriter *w, yyjson_val *value);

#endif
