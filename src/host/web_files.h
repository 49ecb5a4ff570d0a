/* SPDX-License-Identifier: Apache-2.0 */
/* The files of web/, as bytes of the program: cmake/EmbedWeb.cmake writes them at build time. */
#ifndef COBORD_HOST_WEB_FILES_H
#define COBORD_HOST_WEB_FILES_H

#include "serve/serve_page.h"

extern const ServePage web_files;

#endif
