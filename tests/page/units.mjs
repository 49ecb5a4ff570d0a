// SPDX-License-Identifier: Apache-2.0
// The parts of the page that need no browser, under Node: Markdown, colours of code, the limits of the
// settings, events of a stream. Hostile texts of a quarter of a megabyte take milliseconds; what goes back over
// what it read takes minutes.
import {highlight} from "../../web/highlight.mjs";
import {parse, parseInline, safeHref} from "../../web/markdown.mjs";
import {faultOf, FIELDS, requestFields} from "../../web/settings.mjs";
import {serverEvents} from "../../web/stream.mjs";

const BYTES = 1 << 18,
    MS_MAX = 10000;
let failed = 0;

function test(name, run) {
    try {
        run();
        console.log(`ok ${name}`);
    } catch (error) {
        failed++;
        console.log(`FAILED ${name}: ${error.stack}`);
    }
}

function equal(got, wanted, what = "") {
    if (JSON.stringify(got) !== JSON.stringify(wanted))
        throw new Error(`${what}: got ${JSON.stringify(got)}, wanted ${JSON.stringify(wanted)}`);
}

// A tree in short: "h2(a) p(b *c*)".
function short(blocks) {
    return blocks
        .map((b) => {
            switch (b.type) {
                case "heading":
                    return `h${b.level}(${inline(b.inline)})`;
                case "paragraph":
                    return `p(${inline(b.inline)})`;
                case "code":
                    return `code:${b.language}(${b.text})${b.open ? "..." : ""}`;
                case "rule":
                    return "rule";
                case "quote":
                    return `quote(${short(b.blocks)})`;
                case "list":
                    return `${b.start === null ? "ul" : `ol${b.start}`}(${b.items
                        .map((i) => `${i.checked === null ? "" : i.checked ? "[x]" : "[ ]"}${short(i.blocks)}`)
                        .join("; ")})`;
                default:
                    return `table(${[b.head, ...b.rows].map((row) => row.map(inline).join(" | ")).join("; ")})`;
            }
        })
        .join(" ");
}

function inline(parts) {
    return parts
        .map((p) => {
            if (typeof p === "string") return p;
            switch (p.type) {
                case "code":
                    return `{${p.text}}`;
                case "break":
                    return "/";
                case "link":
                    return `<${p.href} ${inline(p.children)}>`;
                default:
                    return `${p.type}(${inline(p.children)})`;
            }
        })
        .join("");
}

const BLOCKS = [
    ["# a\n## b ##\n### c#", "h1(a) h2(b) h3(c#)"],
    ["#no\n####### no", "p(#no\n####### no)"],
    ["a\nb\n\nc", "p(a\nb) p(c)"],
    ["a\n===\nb\n---", "h1(a) h2(b)"],
    ["***\n- - -\n___", "rule rule rule"],
    ["```js x\na < b\n```\nc", "code:js(a < b) p(c)"],
    ["````\n```\n````", "code:(```)"],
    ["~~~\na", "code:(a)..."],
    ["```c++\n```", "code:c++()"],
    ["> a\nb\n\nc", "quote(p(a\nb)) p(c)"],
    ["> > a", "quote(quote(p(a)))"],
    ["- a\n- b\n\nc", "ul(p(a); p(b)) p(c)"],
    ["3. a\n4. b", "ol3(p(a); p(b))"],
    ["1. a\n  - b\n  - c\n2. d", "ol1(p(a) ul(p(b); p(c)); p(d))"],
    ["- a\n\n  b\n- c", "ul(p(a) p(b); p(c))"],
    ["- a\n  ```c\n  x\n  ```\n- b", "ul(p(a) code:c(x); p(b))"],
    ["- [ ] a\n- [x] b", "ul([ ]p(a); [x]p(b))"],
    ["- a\n* b", "ul(p(a)) ul(p(b))"],
    ["text\n- a", "p(text) ul(p(a))"],
    ["| a | b |\n|---|:-:|\n| 1 | `x|y` |\n\nz", "table(a | b; 1 | `x) p(z)"],
    ["a | b\n--|--\n1\\|2 | 3 | 4", "table(a | b; 1|2 | 3)"],
    ["a | b\nc", "p(a | b\nc)"],
    ["<div>\n# a", "p(<div>) h1(a)"],
    ["a\r\nb\r\n\r\nc", "p(a\nb) p(c)"],
];

const INLINES = [
    ["**a** *b* _c_ __d__ ~~e~~ ***f***", "strong(a) em(b) em(c) strong(d) del(e) em(strong(f))"],
    ["*a **b** c*", "em(a strong(b) c)"],
    ["**a *b** c*", "em(em(a em(b)) c)"],
    ["snake_case_name 2 * 3 * 4 **", "snake_case_name 2 * 3 * 4 **"],
    ["`a*b*` ``c`d`` `e", "{a*b*} {c`d} `e"],
    ["\\*a\\* \\\\ \\a", "*a* \\ \\a"],
    ["a  \nb\\\nc\nd", "a  /b/c\nd"],
    ["[a *b*](https://c.d/e)", "<https://c.d/e a em(b)>"],
    ['[a](https://c.d/(e) "t")', "<https://c.d/(e) a>"],
    ["[a](javascript:alert(1)) [b](/c) [d]", "[a](javascript:alert(1)) [b](/c) [d]"],
    ["![a](https://c.d/e.png)", "<https://c.d/e.png a>"],
    ["[a [b](https://c.d)](https://e.f)", "[a <https://c.d/ b>](<https://e.f/ https://e.f>)"],
    [
        "see https://a.b/c?d=e. (https://f.g/h)",
        "see <https://a.b/c?d=e https://a.b/c?d=e>. (<https://f.g/h https://f.g/h>)",
    ],
    ["<https://a.b> <b> x<br>y", "<https://a.b/ https://a.b> <b> x/y"],
    ["&lt;b&gt; &amp;amp; &copy;", "<b> &amp; &copy;"],
    ["<script>alert(1)</script>", "<script>alert(1)</script>"],
];

for (const [text, wanted] of BLOCKS)
    test(`blocks ${JSON.stringify(text)}`, () => equal(short(parse(text)), wanted));
for (const [text, wanted] of INLINES)
    test(`inline ${JSON.stringify(text)}`, () => equal(inline(parseInline(text)), wanted));

test("addresses", () => {
    equal(["http://a.b", "HTTPS://A.B/c"].map(safeHref), ["http://a.b/", "https://a.b/c"]);
    const bad = [
        "javascript:x",
        " https://a",
        "data:text/html,x",
        "//a.b",
        "https://",
        "vbscript:x",
        "java\nscript:x",
        "file:///x",
    ];
    equal(
        bad.map(safeHref),
        bad.map(() => null),
    );
});

// ---- Nothing is lost ----

test("every block's raw text is where it says", () => {
    const text = BLOCKS.map(([t]) => t.replace(/\r/g, "")).join("\n\n");
    for (const block of parse(text)) equal(text.slice(block.at, block.at + block.raw.length), block.raw);
});

const LANGUAGES = [
    "c",
    "cpp",
    "python",
    "js",
    "ts",
    "rust",
    "go",
    "java",
    "sh",
    "sql",
    "yaml",
    "css",
    "json",
    "make",
    "html",
    "diff",
];
const CODE = [
    ["c", 'if (x) return "a\\"b"; // c', 'keyword:if keyword:return string:"a\\"b" comment:// c'],
    [
        "python",
        "def f(x): return '''a\nb''' # c",
        "keyword:def name:f keyword:return string:'''a\nb''' comment:# c",
    ],
    ["c", "/* a\n   b */ int x;", "comment:/* a\n   b */ type:int"],
    ["js", "const a = `b ${c}`; f(0x1f)", "keyword:const string:`b ${c}` name:f number:0x1f"],
    [
        "sh",
        'for i in $X; do echo "a" --b; done # c',
        'keyword:for keyword:in name:$X keyword:do keyword:echo string:"a" name:--b keyword:done comment:# c',
    ],
    ["json", '{"a": ["b", 1.5, true]}', 'name:"a" string:"b" number:1.5 number:true'],
    [
        "html",
        '<a href="x">t</a><!-- c -->',
        'keyword:<a name:href string:"x" keyword:> keyword:</a> comment:<!-- c -->',
    ],
    ["css", "a { color: #fff; /* c */ }", "name:color number:#fff comment:/* c */"],
    ["rust", "fn f<'a>(x: &'a str) -> u8 { b'c' }", "keyword:fn type:'a type:'a type:str type:u8 string:'c'"],
    ["go", "func f() error { return nil }", "keyword:func name:f type:error keyword:return number:nil"],
    ["diff", "@@ 1 @@\n-a\n+b\n", "type:@@ 1 @@\n removed:-a\n added:+b\n"],
    ["yaml", 'a: 1 # c\n- b: "x"', 'name:a number:1 comment:# c name:- b string:"x"'],
    ["nonsense", "if", ""],
    ["constructor", "if", ""],
];
for (const [language, text, wanted] of CODE)
    test(`code ${language}`, () => {
        const parts = highlight(text, language);
        equal(parts.map(([, t]) => t).join(""), text, "the text");
        equal(
            parts
                .filter(([kind]) => kind)
                .map(([kind, t]) => `${kind}:${t}`)
                .join(" "),
            wanted,
        );
    });

// ---- Settings, events ----

test("limits of settings", () => {
    const fault = (name, text) =>
        faultOf(
            FIELDS.find((field) => field.name === name),
            text,
        );
    const good = [
        ["temperature", "0"],
        ["temperature", "0,7"],
        ["temperature", "2"],
        ["top_k", "40"],
        ["seed", "-3"],
        ["max_tokens", "1"],
        ["presence_penalty", "-2"],
        ["repetition_penalty", "0.01"],
        ["seed", ""],
    ];
    equal(
        good.map(([name, text]) => fault(name, text)),
        good.map(() => null),
    );
    const bad = [
        ["temperature", "2.1"],
        ["temperature", "-0.1"],
        ["top_p", "x"],
        ["top_k", "1.5"],
        ["max_tokens", "0"],
        ["seed", "1e30"],
        ["repetition_penalty", "0"],
        ["min_p", "Infinity"],
        ["top_k", "2147483648"],
    ];
    equal(
        bad.filter(([name, text]) => !fault(name, text)),
        [],
    );
});

test("fields of a request", () => {
    equal(requestFields({}), {temperature: 0.7});
    equal(requestFields({temperature: null, seed: 0, top_p: "x", stop: ["a"]}), {seed: 0, stop: ["a"]});
});

async function eventsTest() {
    const text =
        ': idle\n\nid: a:1\ndata: {"a":"\u00e9"}\n\ndata:x\r\ndata: y\r\n\r\nid: a:2\n\ndata: [DONE]\n\ndata: cut';
    const bytes = new TextEncoder().encode(text),
        wanted = [
            ["a:1", '{"a":"\u00e9"}'],
            [null, "x\ny"],
            [null, "[DONE]"],
        ];
    for (const size of [1, 2, 3, 7, bytes.length]) {
        const body = new ReadableStream({
            start(controller) {
                for (let at = 0; at < bytes.length; at += size) controller.enqueue(bytes.slice(at, at + size));
                controller.close();
            },
        });
        const got = [];
        for await (const {id, data} of serverEvents(body)) got.push([id, data]);
        test(`events in pieces of ${size}`, () => equal(got, wanted));
    }
}
await eventsTest();

// ---- Hostile texts ----

function inTime(what, run) {
    const since = performance.now();
    run();
    const ms = performance.now() - since;
    if (ms > MS_MAX) throw new Error(`${what} took ${Math.round(ms)} ms`);
}

const UNITS = [
    "`",
    "`x``y",
    ">",
    "> ",
    "- ",
    "*",
    "*a ",
    "_a_ ",
    "[",
    "](",
    "[](",
    "![",
    "<",
    "#",
    "~~a",
    "http://",
    "\n",
    "- a\n",
    "|",
    "|a\n|-\n",
    " ",
    "1. ",
    "\\",
    "&lt;",
    "]",
    "> a\n\n",
    "(http://a)",
    "<a>",
    "[a](b(",
    "- - - \n",
    "**a* ",
    "***a",
    "h http://a)))) ",
    "   - a\n      ",
    "a\n===\n",
    "a\n    b\n",
    "- > ",
    "```\n",
    "~~~a\n",
    "[a](http://b)",
    "*_~~",
    "a|",
    "| - ",
    "\t- ",
    "\u0000",
    "<br>",
    "https://a.b/(",
    "# #",
    '"',
    '[a]("',
    "=",
    "- [ ] ",
    "\ud83d",
];

for (const unit of UNITS)
    test(`much of ${JSON.stringify(unit)}`, () =>
        inTime("parse", () => parse(unit.repeat(Math.floor(BYTES / unit.length)))));

test("deep lists, quotes, emphasis", () => {
    const depth = (blocks) =>
        1 + Math.max(0, ...blocks.map((b) => depth(b.blocks ?? b.items?.flatMap((i) => i.blocks) ?? [])));
    const deep = Array.from({length: 2000}, (_, i) => `${" ".repeat(2 * i)}- a`).join("\n");
    inTime("lists", () => {
        if (depth(parse(deep)) > 40) throw new Error("too deep");
    });
    inTime("quotes", () => {
        if (depth(parse(`${">".repeat(5000)} a`)) > 40) throw new Error("too deep");
    });
    const nested = (parts) => 1 + Math.max(0, ...parts.map((p) => (p.children ? nested(p.children) : 0)));
    inTime("emphasis", () => {
        if (nested(parseInline(`${"*a _b ".repeat(9000)}${"_ *".repeat(9000)}`)) > 64)
            throw new Error("too deep");
    });
});

test("a megabyte of backticks", () => inTime("parse", () => parse("`".repeat(1 << 20))));

test("backticks of every length", () =>
    inTime("parse", () => parse(Array.from({length: 1400}, (_, i) => "`".repeat(i + 1)).join(" "))));

test("hostile code", () => {
    for (const language of LANGUAGES)
        for (const unit of [
            '"',
            '\\"',
            "/*",
            " ",
            "<",
            "- ",
            "a",
            "a:",
            "#",
            "1",
            "\n",
            '"""',
            "${",
            "@",
            "a-",
            "[",
            "'a",
            "--a ",
            "{a:b",
            '="',
            "a =",
        ])
            inTime(`${language} ${JSON.stringify(unit)}`, () => {
                const text = unit.repeat(50000 / unit.length);
                equal(
                    highlight(text, language).reduce((n, [, t]) => n + t.length, 0),
                    text.length,
                    `${language} ${unit}`,
                );
            });
});

console.log(failed ? `${failed} failed` : "all passed");
process.exitCode = failed ? 1 : 0;
