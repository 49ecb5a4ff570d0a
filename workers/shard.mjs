// SPDX-License-Identifier: Apache-2.0
/* The script of a shard: embedding rows and logits of a range of ids. */
import { nodeFront } from './front.mjs';
import { objectOf } from './object.mjs';

export class Shard extends objectOf(2) {}
export default nodeFront;
