/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as Python writes and reads them. */
#ifndef COBORD_TEXT_JINJA_NUMBER_H
#define COBORD_TEXT_JINJA_NUMBER_H

#include "text/jinja_value.h"

enum { JINJA_NUMBER_BYTES = 48 };

/* Into out[JINJA_NUMBER_BYTES]; returns the length. */
size_t jinja_number_write_int(int64_t integer, char *out);
size_t jinja_number_write_float(double number, char *out); /* repr: the shortest that reads back */

/* A whole literal, with _ between digits: an int, or a float. Result  false for anything else, and for ints
 * beyond 64 bits. */
bool jinja_number_read(const uint8_t *text, size_t bytes, JinjaValue *out);

/* Python's round(number, digits), digits 0..15: half to even, on the exact value. */
double jinja_number_round(double number, unsigned digits);
double jinja_number_floor(double number);

#endif
