/* SPDX-License-Identifier: Apache-2.0 */
/* exp, log, pow, tanh, sin and cos with the same bits on every host: only IEEE add, multiply, divide, sqrt and integer
 * operations, in a written order (docs/format/numerics.md), never the C library's. Scalar forms; `ops` has vectors. */
#ifndef COBORD_MODEL_ELEMENTARY_H
#define COBORD_MODEL_ELEMENTARY_H

#include <stdint.h>

float elementary_exp(float x); /* below -87.3 gives 0, above 88.7 infinity; error at most 2 ulp */
float elementary_log(float x);
float elementary_tanh(float x);
double elementary_exp64(double x);
double elementary_log64(double x);
double elementary_pow64(double base, double exponent);            /* base > 0 */
void elementary_sincos64(double x, double *sine, double *cosine); /* |x| below 2^31 */

#endif
