// SPDX-License-Identifier: Apache-2.0
/* The script of a station: rows through a range of layers, their attention cache in memory and in SQLite. */
import { nodeFront } from './front.mjs';
import { objectOf } from './object.mjs';

export class Station extends objectOf(1) {}
export default nodeFront;
