// SPDX-License-Identifier: Apache-2.0
/* The script of a shard warden: embedding rows and the head of a range of ids, in memory and in KV in front of R2. */
import { nodeFront } from './front.mjs';
import { objectOf } from './object.mjs';

export class ShardWarden extends objectOf(4) {}
export default nodeFront;
