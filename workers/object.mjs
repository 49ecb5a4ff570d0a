// SPDX-License-Identifier: Apache-2.0
/* The one object of a node's script: an instance of the module and the requests that wait for it. One request
 * at a time, from its head to the work after its response, in the order in which their bodies were whole.
 *
 *   fetch --> body --> queue --> (open, when there is no instance) --> serve --> response --> work after it
 *
 * The instance lives as long as the object does. One that could not be opened serves the request that found it
 * so, with the reason; one that trapped serves nothing. The next request begins with a new one. */
import { Ahead } from './ahead.mjs';
import { Node } from './node.mjs';

const WAITING_MAX = 64;

/* Who waited while others were served may have left meanwhile: the runtime's loop has to turn for that to be heard. */
const news = () => new Promise(resolve => setTimeout(resolve));

export function objectOf(kind) {
    return class {
        #context; #env; #node;
        #last = Promise.resolve();
        #waiting = 0;
        #turns = 0; // that have begun
        #ahead = new Ahead();

        constructor(context, env) {
            this.#context = context;
            this.#env = env;
            this.#last = this.#open().catch(error => console.error(`not opened: ${error?.stack ?? error}`));
        }

        fetch(request) {
            if (this.#waiting >= WAITING_MAX) return this.#full();
            const turn = this.#turns;
            this.#waiting++;
            return new Promise((resolve, reject) => {
                const taken = this.#ahead.take(request);
                this.#context.waitUntil(taken.then(body => this.#inTurn(request, body, turn, resolve, reject)));
            });
        }

        #inTurn(request, body, turn, resolve, reject) {
            this.#last = this.#last.then(() => turn !== this.#turns && news())
                .then(() => this.#serve(request, body, resolve))
                .catch(error => this.#fall(error, reject))
                .finally(() => this.#ahead.give(body));
            return this.#last;
        }

        #full() {
            if (!this.#node) throw new Error('too many requests wait until it is open');
            return this.#node.full();
        }

        async #open() {
            const node = new Node(kind, this.#env, this.#context.storage.sql);
            await node.open();
            this.#node = node;
        }

        async #serve(request, body, respond) {
            this.#waiting--;
            this.#turns++;
            if (!this.#node) await this.#open();
            await this.#node.serve(request, body, respond);
            if (this.#node.failed) this.#node = undefined;
        }

        #fall(error, reject) {
            console.error(`fell: ${error?.stack ?? error}`);
            this.#node = undefined;
            reject(error);
        }
    };
}
