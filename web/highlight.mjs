// SPDX-License-Identifier: Apache-2.0
// Colours for code: highlight(text, language) -> [[kind, text], ...], whose texts together are the text. Kinds:
// keyword,
// string, number, comment, name, type, added, removed, null. It reads words and marks, not grammars: enough to see
// the
// shape of a program. Patterns are such that none goes back over what it has read; long texts stay plain.

const LENGTH_MAX = 100000;

const words = (text) => new Set(text.trim().split(/\s+/));
const NUMBER = String.raw`\b(?:0[xX][\da-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|\d[\d_]*` +
    String.raw`(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?)[a-zA-Z%]*`;
const DOUBLE = String.raw`"[^"\\\n]*(?:\\[^][^"\\\n]*)*"?`;
const SINGLE = String.raw`'[^'\\\n]*(?:\\[^][^'\\\n]*)*'?`;
const BACKTICK = "`[^`\\\\]*(?:\\\\[^][^`\\\\]*)*`?";
const CHARACTER = String.raw`'(?:\\(?:[xu][\da-fA-F{}]+|[^])|[^'\\\n])'`;
const SLASHES = String.raw`\/\/[^\n]*|\/\*[^]*?(?:\*\/|(?![^]))`;
const HASH = String.raw`#[^\n]*`;
const WORD = String.raw`[\p{L}_$][\p{L}\p{N}_$]*`;

const C_WORDS = `alignas alignof asm auto break case const constexpr continue default do else enum extern for
    goto if inline register restrict return sizeof static static_assert struct switch typedef typeof union
    volatile while`;
const JS_WORDS = `as async await break case catch class const continue debugger default delete do else export
    extends finally for from function get if implements import in instanceof interface let new of private
    protected public readonly return set static super switch this throw try type typeof var void while with
    yield declare enum namespace keyof`;
const LITERALS = words("true false null undefined nil None True False NULL nullptr NaN Infinity this self");

// comment, string: patterns; keywords, types: words.
const LANGUAGES = {
    c: {
        comment: SLASHES,
        string: `${DOUBLE}|${CHARACTER}`,
        extra: ["keyword", String.raw`#[ \t]*[a-z]+\b`],
        keywords: words(C_WORDS),
        types: words(`bool char double float int long short signed unsigned void size_t ssize_t int8_t int16_t
            int32_t int64_t uint8_t uint16_t uint32_t uint64_t uintptr_t FILE`),
    },
    cpp: {
        comment: SLASHES,
        string: `${DOUBLE}|${CHARACTER}`,
        extra: ["keyword", String.raw`#[ \t]*[a-z]+\b`],
        keywords:
            words(`${C_WORDS} catch class co_await co_return co_yield concept consteval constinit const_cast decltype
            delete dynamic_cast explicit export final friend mutable namespace new noexcept operator override private
            protected public reinterpret_cast requires static_cast template throw try typename using virtual`),
        types: words(
            "auto bool char double float int long short signed unsigned void size_t string vector map std",
        ),
    },
    python: {
        comment: HASH,
        string: `[rRbBfFuU]{0,2}(?:"""[^]*?(?:"""|(?![^]))|'''[^]*?(?:'''|(?![^]))|${DOUBLE}|${SINGLE})`,
        extra: ["type", String.raw`@[\w.]+`],
        keywords:
            words(`and as assert async await break case class continue def del elif else except finally for
                from global if import in is lambda match nonlocal not or pass raise return try while with
                yield`),
        types: words("bool bytes dict float frozenset int list object set str tuple type"),
    },
    javascript: {
        comment: SLASHES,
        string: `${DOUBLE}|${SINGLE}|${BACKTICK}`,
        keywords: words(JS_WORDS),
        types: words("any bigint boolean never number object string symbol unknown Array Map Promise Set"),
    },
    rust: {
        comment: SLASHES,
        string: `b?${DOUBLE}|${CHARACTER}`,
        extra: ["type", String.raw`#!?\[[^\]\n]*\]|'[a-z_]\w*`],
        keywords:
            words(`as async await break const continue crate dyn else enum extern fn for if impl in let loop
                match mod move mut pub ref return static struct super trait type unsafe use where while`),
        types: words(`bool char f32 f64 i8 i16 i32 i64 i128 isize str u8 u16 u32 u64 u128 usize Box Option
            Result String Vec Self`),
    },
    go: {
        comment: SLASHES,
        string: `${DOUBLE}|${CHARACTER}|${BACKTICK}`,
        keywords:
            words(`break case chan const continue default defer else fallthrough for func go goto if import
                interface map package range return select struct switch type var`),
        types: words(`any bool byte complex64 complex128 error float32 float64 int int8 int16 int32 int64 rune
            string uint uint8 uint16 uint32 uint64 uintptr`),
    },
    java: {
        comment: SLASHES,
        string: `${DOUBLE}|${CHARACTER}`,
        extra: ["type", String.raw`@\w+`],
        keywords:
            words(`abstract as async await base break case catch class const continue data default do else
                enum extends final finally for foreach fun get if implements import in instanceof interface
                internal is namespace native new object operator out override package params private protected
                public readonly record ref return sealed set static super switch synchronized throw throws try
                using val var virtual void volatile when while`),
        types: words(
            "boolean bool byte char decimal double float int long short string String Integer List Map Object",
        ),
    },
    shell: {
        comment: String.raw`(?<![^\s])#[^\n]*`,
        string: String.raw`"[^"\\]*(?:\\[^][^"\\]*)*"?|'[^']*'?`,
        extra: ["name", String.raw`\$(?:\{[^}\n]*\}?|\w+|[@*#?$!-])|(?<![^\s])--?[a-zA-Z][\w-]*`],
        keywords:
            words(`case cd do done echo elif else esac eval exec exit export fi for function if in local read
                return set shift source sudo then trap unset until while`),
        types: words(""),
    },
    sql: {
        comment: String.raw`--[^\n]*|\/\*[^]*?(?:\*\/|(?![^]))`,
        string: `${SINGLE}|${DOUBLE}`,
        fold: true,
        keywords:
            words(`add all alter and as asc begin between by case check commit constraint create cross default
                delete desc distinct drop else end exists foreign from full group having if in index inner
                insert into is join key left like limit not null offset on or order outer primary references
                returning right rollback select set table then transaction union unique update using values
                view when where with`),
        types: words(
            "bigint blob boolean char date decimal float integer int json numeric real text timestamp varchar",
        ),
    },
    yaml: {
        comment: String.raw`(?<![^\s])#[^\n]*`,
        string: `${DOUBLE}|${SINGLE}`,
        extra: [
            "name",
            String.raw`^[ \t]*(?:- )?[\w.\/-]+(?=[ \t]*:(?:\s|$))|^\[[^\]\n]*\]|^[\w.-]+(?=[ \t]*=)`,
        ],
        keywords: words("yes no on off"),
        types: words(""),
    },
    css: {
        comment: String.raw`\/\*[^]*?(?:\*\/|(?![^]))`,
        string: `${DOUBLE}|${SINGLE}`,
        extra: ["name", String.raw`--[\w-]+|(?<=[{;\s])[a-z-]+(?=:[^\n{]*[;}\n])`],
        more: ["number", String.raw`#[\da-fA-F]{3,8}\b|[-+]?\d*\.?\d+(?:[a-z]+\b|%)?`],
        most: ["keyword", String.raw`@[\w-]+|![a-z]+`],
        keywords: words(""),
        types: words(""),
    },
    json: {
        comment: SLASHES,
        string: "(?!)",
        extra: ["name", String.raw`"[^"\\\n]*(?:\\[^][^"\\\n]*)*"(?=[ \t]*:)`],
        more: ["string", DOUBLE],
        keywords: words(""),
        types: words(""),
    },
    make: {
        comment: HASH,
        string: `${DOUBLE}|${SINGLE}`,
        extra: ["name", String.raw`\$[({][^)}\n]*[)}]?|^[\w.%\/ -]+(?=:)`],
        keywords:
            words(`FROM RUN CMD COPY ADD ENV EXPOSE WORKDIR ENTRYPOINT USER ARG LABEL VOLUME if else endif
                include define function endfunction foreach endforeach`),
        types: words(""),
    },
};

const ALIASES = {
    h: "c",
    "c++": "cpp",
    cc: "cpp",
    cxx: "cpp",
    hpp: "cpp",
    cu: "cpp",
    objc: "c",
    py: "python",
    python3: "python",
    js: "javascript",
    mjs: "javascript",
    jsx: "javascript",
    ts: "javascript",
    tsx: "javascript",
    typescript: "javascript",
    node: "javascript",
    rs: "rust",
    golang: "go",
    kotlin: "java",
    cs: "java",
    csharp: "java",
    "c#": "java",
    swift: "java",
    scala: "java",
    php: "java",
    dart: "java",
    sh: "shell",
    bash: "shell",
    zsh: "shell",
    fish: "shell",
    console: "shell",
    "shell-session": "shell",
    yml: "yaml",
    toml: "yaml",
    ini: "yaml",
    scss: "css",
    less: "css",
    jsonc: "json",
    json5: "json",
    ndjson: "json",
    dockerfile: "make",
    makefile: "make",
    cmake: "make",
    postgresql: "sql",
    sqlite: "sql",
    mysql: "sql",
    html: "markup",
    xml: "markup",
    svg: "markup",
    vue: "markup",
    patch: "diff",
};

export function highlight(text, language) {
    const name = Object.hasOwn(ALIASES, language) ? ALIASES[language] : language;
    if (text.length > LENGTH_MAX) return [[null, text]];
    if (name === "markup") return joined(markup(text));
    if (name === "diff") return joined(diff(text));
    return Object.hasOwn(LANGUAGES, name) ? joined(code(text, LANGUAGES[name])) : [[null, text]];
}

// ---- Languages of words and marks ----

// One pattern for each language, made when it is first met: groups in this order.
function patternOf(language) {
    const group = (kind) => (kind ? `(${kind[1]})` : "((?!))");
    language.pattern ??= new RegExp(
        `(${language.comment})|(${language.string})|${group(language.extra)}|` +
            `${group(language.more)}|${group(language.most)}|(${NUMBER})|(${WORD})`,
        "gum",
    );
    return language.pattern;
}

function* code(text, language) {
    let at = 0;
    for (const found of text.matchAll(patternOf(language))) {
        if (!found[0]) continue;
        if (found.index > at) yield [null, text.slice(at, found.index)];
        at = found.index + found[0].length;
        yield [kindOf(found, text, at, language), found[0]];
    }
    if (at < text.length) yield [null, text.slice(at)];
}

function kindOf(found, text, end, language) {
    if (found[1]) return "comment";
    if (found[2]) return "string";
    if (found[3]) return language.extra[0];
    if (found[4]) return language.more[0];
    if (found[5]) return language.most[0];
    if (found[6]) return "number";
    const word = language.fold ? found[0].toLowerCase() : found[0];
    if (language.keywords.has(word)) return "keyword";
    if (language.types.has(word)) return "type";
    if (LITERALS.has(word)) return "number";
    return text[end] === "(" ? "name" : null;
}

// ---- HTML and XML: inside of a tag, and outside ----

const TAG = /(<!--[^]*?(?:-->|$))|(<\/?[a-zA-Z][\w:.-]*|<[!?][a-zA-Z]+)/g;
const INSIDE = /("[^"]*"?|'[^']*'?)|([\w:@.-]+)(?=\s*=)|(\/?>|\?>)/g;

function* markup(text) {
    for (let at = 0; at < text.length;) {
        TAG.lastIndex = at;
        const tag = TAG.exec(text);
        if (!tag) return yield [null, text.slice(at)];
        yield [null, text.slice(at, tag.index)];
        yield [tag[1] ? "comment" : "keyword", tag[0]];
        at = tag.index + tag[0].length;
        if (!tag[1]) at = yield* insideTag(text, at);
    }
}

function* insideTag(text, start) {
    let at = start;
    for (;;) {
        INSIDE.lastIndex = at;
        const part = INSIDE.exec(text);
        if (!part) {
            yield [null, text.slice(at)];
            return text.length;
        }
        yield [null, text.slice(at, part.index)];
        at = part.index + part[0].length;
        yield [part[1] ? "string" : part[2] ? "name" : "keyword", part[0]];
        if (part[3]) return at;
    }
}

// ---- Differences, line by line ----

function* diff(text) {
    for (const line of text.split(/(?<=\n)/)) {
        const kind = line.startsWith("@@")
            ? "type"
            : line.startsWith("+")
              ? "added"
              : line.startsWith("-")
                ? "removed"
                : null;
        yield [kind, line];
    }
}

function joined(parts) {
    const out = [];
    for (const [kind, text] of parts) {
        const last = out.at(-1);
        if (!text) continue;
        if (last && last[0] === kind) last[1] += text;
        else out.push([kind, text]);
    }
    return out;
}
