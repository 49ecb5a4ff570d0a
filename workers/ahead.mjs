// SPDX-License-Identifier: Apache-2.0
/* Bodies that are read before their requests have their turn, so that a peer which stops in the middle keeps nobody
 * waiting. What is too large for the room that is left, or has no length, is read in the turn. */
import { readSome } from './stream.mjs';

const ROOM_BYTES = 8 << 20; // of all of them together

export class Ahead {
    #room = ROOM_BYTES;

    /* {bytes}, or {error} when they did not come; undefined when they are for the turn. */
    async take({ headers, body }) {
        const length = Number(headers.get('content-length') ?? Infinity);
        if (!body || !(length <= this.#room)) return undefined;
        this.#room -= length;
        const taken = { length };
        try {
            taken.bytes = await readSome(body, length);
            if (taken.bytes.length !== length) taken.error = `${taken.bytes.length} bytes came instead of ${length}`;
        } catch (error) {
            taken.error = String(error?.message ?? error);
        }
        return taken;
    }

    give(taken) { this.#room += taken?.length ?? 0; }
}
