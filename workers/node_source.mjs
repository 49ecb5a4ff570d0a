// SPDX-License-Identifier: Apache-2.0
/* Files for cobord.mjs under Node: ranges are read straight into the module's memory. */
import fs from 'node:fs';

export function openSource(path) {
    const file = fs.openSync(path, 'r');
    return {
        bytes: fs.fstatSync(file).size,
        read(into, offset) {
            for (let done = 0; done < into.length;) {
                const more = fs.readSync(file, into, done, into.length - done, offset + done);
                if (!more) throw new Error(`${path}: ${into.length} bytes wanted at ${offset}, has ${offset + done}`);
                done += more;
            }
        },
        close() { fs.closeSync(file); },
    };
}

export function readModule(path) {
    return new WebAssembly.Module(fs.readFileSync(path));
}
