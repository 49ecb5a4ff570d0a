// SPDX-License-Identifier: Apache-2.0
/* The script of a layer warden: weights of a range of layers, in memory in front of R2. */
import { nodeFront } from './front.mjs';
import { objectOf } from './object.mjs';

export class LayerWarden extends objectOf(3) {}
export default nodeFront;
