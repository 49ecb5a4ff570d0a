// SPDX-License-Identifier: Apache-2.0
/* Bytes of a body into WebAssembly memory: a BYOB reader fills one buffer that is used again and again, and they
 * are copied from there. (No reader fills WebAssembly memory itself; every other way leaves garbage, or takes 4 KiB
 * at a time.) */

const STAGING_BYTES = 1 << 20;
const WAIT_MS = 10_000; // for a whole body: a node does nothing else meanwhile
const spare = []; // buffers between two uses: as many as bodies were read at the same time

/* Fills at most `room` bytes at `address` of `memory`. Result: how many came; more than `room` when the body goes on
 * behind them, which is then left. */
export async function readInto(body, memory, address, room) {
    if (!body) return 0;
    const reader = body.getReader({ mode: 'byob' });
    const late = setTimeout(() => reader.cancel().catch(() => {}), WAIT_MS);
    let staging = spare.pop() ?? new ArrayBuffer(STAGING_BYTES), came = 0;
    try {
        while (came <= room) {
            const want = Math.min(room - came || 1, STAGING_BYTES); // one more, to see the end
            const { value, done } = await reader.readAtLeast(want, new Uint8Array(staging, 0, want));
            if (!value) break; // the buffer went with a cancelled body
            staging = value.buffer;
            const fits = value.subarray(0, room - came);
            new Uint8Array(memory.buffer, address + came, fits.length).set(fits);
            came += value.length;
            if (done) break;
        }
        if (staging.byteLength) spare.push(staging);
        return came;
    } finally {
        clearTimeout(late);
        reader.cancel().catch(() => {});
    }
}

/* Writes `bytes` bytes at `address` of `memory` to a stream's writer, within WAIT_MS: no copy of them stays behind. A
 * reader that is gone or late gets no more. */
export async function writeFrom(memory, address, bytes, writer) {
    const late = setTimeout(() => writer.abort(new Error('the reader is late')).catch(() => {}), WAIT_MS);
    try {
        for (let at = 0; at < bytes; at += STAGING_BYTES) {
            const part = Math.min(bytes - at, STAGING_BYTES);
            await writer.write(new Uint8Array(memory.buffer, address + at, part));
        }
        await writer.close();
    } catch {
        writer.abort().catch(() => {});
    } finally {
        clearTimeout(late);
    }
}

/* Reads to the end of a body that nobody wants, within WAIT_MS: a sender that is cut off while it sends does not see
 * the answer. */
export async function readAway(body) {
    const reader = body.getReader({ mode: 'byob' });
    const late = setTimeout(() => reader.cancel().catch(() => {}), WAIT_MS);
    let buffer = new ArrayBuffer(STAGING_BYTES);
    try {
        for (let over = false; !over;) {
            const { value, done } = await reader.read(new Uint8Array(buffer));
            over = done || !value;
            buffer = value?.buffer;
        }
    } finally {
        clearTimeout(late);
    }
}

/* The bytes of a body without a length, read to its end: at most `most`, and one more when there are more. */
export async function readSome(body, most) {
    const reader = body.getReader(), parts = [];
    let came = 0, isLate = false;
    const late = setTimeout(() => {
        isLate = true;
        reader.cancel().catch(() => {});
    }, WAIT_MS);
    try {
        for (let part; !(part = await reader.read()).done; came += part.value.length)
            if (came <= most) parts.push(part.value.subarray(0, most + 1 - came));
    } finally {
        clearTimeout(late);
    }
    if (isLate) throw new Error('it took too long');
    return joined(parts);
}

function joined(parts) {
    const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
    let at = 0;
    for (const part of parts) {
        bytes.set(part, at);
        at += part.length;
    }
    return bytes;
}
