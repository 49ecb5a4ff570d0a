/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/access_options.h"

#include "cli/complain.h"
#include "host/hangup.h"
#include "host/log.h"

int access_options_read(const Options *o, Access *out)
{
    Why warning, why = {{0}};
    *out = (Access){options_text(o, OPTION_API_KEYS), options_text(o, OPTION_CORS)};
    if (out->keys_file || !hangup_is_possible()) hangup_ignore(); /* `systemctl reload` too */
    Error error = access_check(&(Access){.cors = out->cors}, &warning, &why);
    if (error != OK) return complain(error, &why, options_where(o, OPTION_CORS), NULL);
    error = access_check(&(Access){.keys_file = out->keys_file}, &warning, &why);
    if (error != OK)
        return complain(error, &why, NULL, "Correct that file; `cobord keys new NAME` adds a key");
    if (warning.text[0]) log_say(LOG_INFO, "%s", warning.text);
    return 0;
}
