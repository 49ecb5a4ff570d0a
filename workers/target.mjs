// SPDX-License-Identifier: Apache-2.0
/* The target as it came: the rest of the address behind scheme and host. */
export function targetOf({ url }) {
    const at = url.indexOf('/', url.indexOf('//') + 2);
    return at < 0 ? '/' : url.slice(at);
}
