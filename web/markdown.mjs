// SPDX-License-Identifier: Apache-2.0
// Markdown as models write it, to a tree. No HTML: what looks like a tag is text. Time is linear in the text,
// whatever
// it holds, and depth is bounded: markdown_view.mjs may recurse.
//
//   parse(text) -> blocks, each with the `raw` text it came from and `at`, where that begins:
//     {type: "heading", level, inline}             {type: "code", language, text, open}   open: its fence is not
// closed yet
//     {type: "paragraph", inline}                  {type: "table", align, head, rows}     cells are inline
//     {type: "quote", blocks}                      {type: "list", start, items}           start: null is a bullet
// list
//     {type: "rule"}                               items: {checked: null | bool, tight, blocks}
//   inline: an array of strings and
//     {type: "code", text}  {type: "strong" | "em" | "del" | "link", href, children}  {type: "break"}
//
// Not read on purpose: HTML (but <br>), references, footnotes, indented code, images (a link to them: nothing is
// fetched from anywhere because a model named it).

const DEPTH_MAX = 12,
    OPEN_MAX = 16,
    COLUMNS_MAX = 64;

const FENCE = /^( {0,3})(`{3,}|~{3,})([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}>/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?: +|$)/;
const UNDERLINE = /^ {0,3}(?:={3,}|-{3,})\s*$/;
const BLANK = /^\s*$/;
const DIVIDER = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

export function parse(text) {
    const lines = text.replace(/\r\n?/g, "\n").split("\n");
    const blocks = parseLines(lines.map(expandTabs), 0);
    const starts = [0];
    for (const line of lines) starts.push(starts[starts.length - 1] + line.length + 1);
    for (const block of blocks) {
        block.at = starts[block.from];
        block.raw = lines.slice(block.from, block.to).join("\n");
    }
    return blocks;
}

function expandTabs(line) {
    const lead = /^[ \t]*/.exec(line)[0];
    return lead.includes("\t") ? lead.replace(/\t/g, "    ") + line.slice(lead.length) : line;
}

// ---- Blocks ----

function parseLines(lines, depth) {
    const blocks = [];
    for (let at = 0; at < lines.length;) {
        if (BLANK.test(lines[at])) {
            at++;
            continue;
        }
        const block = readBlock(lines, at, depth);
        block.from = at;
        at = block.to;
        blocks.push(block);
    }
    return blocks;
}

function readBlock(lines, at, depth) {
    const line = lines[at],
        fence = FENCE.exec(line);
    if (fence) return readCode(lines, at, fence);
    const heading = HEADING.exec(line);
    if (heading)
        return {
            type: "heading",
            level: heading[1].length,
            inline: parseInline(withoutClosing(heading[2] ?? "")),
            to: at + 1,
        };
    if (isRule(line)) return {type: "rule", to: at + 1};
    if (depth < DEPTH_MAX && QUOTE.test(line)) return readQuote(lines, at, depth);
    if (depth < DEPTH_MAX && ITEM.test(line)) return readList(lines, at, depth);
    if (isTable(lines, at)) return readTable(lines, at);
    return readParagraph(lines, at, depth);
}

// A long line is no rule, whatever it is made of: the pattern would go back over it.
const isRule = (line) => line.length < 200 && RULE.test(line);

// "## Title ##": without the second pair, and without a pattern that would go back over a line of spaces.
function withoutClosing(text) {
    const trimmed = text.trimEnd();
    let end = trimmed.length;
    while (end && trimmed[end - 1] === "#") end--;
    return !end || /\s/.test(trimmed[end - 1]) ? trimmed.slice(0, end).trimEnd() : trimmed;
}

function readCode(lines, at, [, indent, marks, info]) {
    const text = [];
    let to = at + 1,
        open = true;
    for (; to < lines.length && open; to++) {
        const line = lines[to],
            end = FENCE.exec(line);
        open = !(end && end[2][0] === marks[0] && end[2].length >= marks.length && BLANK.test(end[3]));
        if (open) text.push(dedent(line, indent.length));
    }
    return {
        type: "code",
        language: info
            .trim()
            .split(/[\s{,:]/, 1)[0]
            .toLowerCase(),
        text: text.join("\n"),
        open,
        to,
    };
}

function dedent(line, count) {
    let at = 0;
    while (at < count && line[at] === " ") at++;
    return line.slice(at);
}

// Whether a line may go on a paragraph that is above it, without its mark.
function isLazy(line, depth) {
    return !BLANK.test(line) && !startsBlock(line, depth);
}

function startsBlock(line, depth) {
    return (
        FENCE.test(line) ||
        HEADING.test(line) ||
        isRule(line) ||
        (depth < DEPTH_MAX && (QUOTE.test(line) || ITEM.test(line)))
    );
}

function readQuote(lines, at, depth) {
    const inner = [];
    let to = at;
    for (; to < lines.length; to++) {
        if (QUOTE.test(lines[to])) inner.push(lines[to].replace(/^ {0,3}> ?/, ""));
        else if (!BLANK.test(lines[to - 1]) && isLazy(lines[to], depth)) inner.push(lines[to]);
        else break;
    }
    return {type: "quote", blocks: parseLines(inner, depth + 1), to};
}

function readList(lines, at, depth) {
    const first = ITEM.exec(lines[at]),
        ordered = /\d/.test(first[2]),
        items = [];
    const list = {type: "list", start: ordered ? parseInt(first[2], 10) : null, items, to: at};
    for (
        let item;
        (item = ITEM.exec(lines[list.to] ?? "")) && isNext(item, first) && !isRule(lines[list.to]);
    ) {
        const {inner, to} = readItem(lines, list.to, item, depth);
        items.push(makeItem(inner, depth));
        list.to = skipBlank(lines, to, first);
    }
    return list;
}

// The same kind of mark, and not deeper.
function isNext(item, first) {
    return item[2].at(-1) === first[2].at(-1) && Math.abs(item[1].length - first[1].length) < 2;
}

// Blank lines belong to a list only when it goes on behind them.
function skipBlank(lines, at, first) {
    let next = at;
    while (next < lines.length && BLANK.test(lines[next])) next++;
    const item = ITEM.exec(lines[next] ?? "");
    return item && isNext(item, first) ? next : at;
}

// An item's lines, without its indentation. Models often indent by two what is below "1. ".
function readItem(lines, at, item, depth) {
    const width =
        item[0].length - item[1].length > item[2].length + 4
            ? item[2].length + 1
            : Math.max(item[0].length - item[1].length, item[2].length + 1);
    const offset = item[1].length + width,
        least = item[1].length + 2;
    const inner = [lines[at].slice(Math.min(offset, item[0].length))];
    let to = at + 1;
    for (; to < lines.length; to++) {
        const line = lines[to],
            indent = line.length - line.trimStart().length;
        if (BLANK.test(line)) {
            if (endsItem(lines, to, least)) break;
            inner.push("");
        } else if (indent >= least) inner.push(line.slice(Math.min(indent, offset)));
        else if (!BLANK.test(lines[to - 1]) && isLazy(line, depth)) inner.push(line);
        else break;
    }
    return {inner, to};
}

// Whether what comes after this blank line is outside. Only the next line is looked at, so a gap of two lines ends
// it too.
function endsItem(lines, at, least) {
    const next = lines[at + 1];
    return next === undefined || BLANK.test(next) || next.length - next.trimStart().length < least;
}

function makeItem(inner, depth) {
    const task = /^\[([ xX])\] +/.exec(inner[0]);
    if (task) inner[0] = inner[0].slice(task[0].length);
    const blocks = parseLines(inner, depth + 1);
    return {checked: task ? task[1] !== " " : null, tight: !inner.some((line) => line === ""), blocks};
}

// ---- Tables ----

function isTable(lines, at) {
    const next = lines[at + 1];
    if (next === undefined || !lines[at].includes("|") || !next.includes("-") || next.length > 4000)
        return false;
    return DIVIDER.test(next) && cells(next).length === cells(lines[at]).length;
}

// Between bars; one with a backslash is a character.
function cells(line) {
    const found = [];
    let text = line.trim(),
        cell = "";
    if (text.startsWith("|")) text = text.slice(1);
    for (let at = 0; at < text.length; at++) {
        if (text[at] === "\\" && text[at + 1] === "|") cell += text[++at];
        else if (text[at] === "|") {
            found.push(cell.trim());
            cell = "";
        } else cell += text[at];
    }
    if (cell.trim() || !text.endsWith("|")) found.push(cell.trim());
    return found.slice(0, COLUMNS_MAX);
}

function readTable(lines, at) {
    const head = cells(lines[at]).map(parseInline),
        rows = [];
    const align = cells(lines[at + 1]).map((cell) =>
        cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : cell.startsWith(":") ? "left" : null,
    );
    let to = at + 2;
    for (; to < lines.length && lines[to].includes("|") && !BLANK.test(lines[to]); to++) {
        const row = cells(lines[to]).slice(0, head.length).map(parseInline);
        while (row.length < head.length) row.push([]);
        rows.push(row);
    }
    return {type: "table", align, head, rows, to};
}

// ---- Paragraphs ----

function readParagraph(lines, at, depth) {
    let to = at + 1;
    for (; to < lines.length && isLazy(lines[to], depth) && !isTable(lines, to); to++)
        if (UNDERLINE.test(lines[to])) break;
    const inline = parseInline(
        lines
            .slice(at, to)
            .map((line) => line.trimStart())
            .join("\n")
            .trimEnd(),
    );
    if (to < lines.length && UNDERLINE.test(lines[to]))
        return {type: "heading", level: lines[to].includes("=") ? 1 : 2, inline, to: to + 1};
    return {type: "paragraph", inline, to};
}

// ---- Inline ----

const PLAIN = /[^\\`*_~[\]!<&h\n]+/y;
const LINK = /\(\s*(<[^<>\n]*>|[^\s()<]*(?:\([^\s()]*\)[^\s()]*)*)(?:\s+"[^"\n]*")?\s*\)/y;
const URL_MARKED = /<(https?:\/\/[^\s<>]+)>/y;
const URL_BARE = /https?:\/\/[^\s<>"'`|]+/y;
const BREAK = /<br ?\/?>/y;
const ENTITY = /&(?:amp|lt|gt|quot|nbsp|#39);/y;
const ENTITIES = {"&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&nbsp;": "\u00a0", "&#39;": "'"};
const PUNCTUATION = /[!-/:-@[-`{-~]/;
const LETTER = /[\p{L}\p{N}_]/u;

export function parseInline(text) {
    const reader = {text, at: 0, parts: [], brackets: [], closers: null};
    while (reader.at < text.length) readPart(reader);
    return pair(reader.parts);
}

function match(pattern, reader) {
    pattern.lastIndex = reader.at;
    const found = pattern.exec(reader.text);
    if (found) reader.at = pattern.lastIndex;
    return found;
}

function readPart(r) {
    const plain = match(PLAIN, r);
    if (plain) return r.parts.push(plain[0]);
    switch (r.text[r.at]) {
        case "\\":
            return readEscape(r);
        case "`":
            return readCodeSpan(r);
        case "*":
        case "_":
        case "~":
            return readMarks(r);
        case "!":
        case "[":
            return readOpening(r);
        case "]":
            return readClosing(r);
        case "<":
            return readAngle(r);
        case "h":
            return readAddress(r);
        case "&": {
            const entity = match(ENTITY, r);
            return entity ? r.parts.push(ENTITIES[entity[0]]) : readCharacter(r);
        }
        case "\n":
            return readNewline(r);
        default:
            return readCharacter(r);
    }
}

const readCharacter = (r) => r.parts.push(r.text[r.at++]);

function readEscape(r) {
    const next = r.text[r.at + 1];
    if (next === "\n") {
        r.at += 2;
        r.parts.push({type: "break"});
    } else if (next && PUNCTUATION.test(next)) {
        r.at += 2;
        r.parts.push(next);
    } else readCharacter(r);
}

// Two spaces in front make it a break.
function readNewline(r) {
    const hard = r.text[r.at - 1] === " " && r.text[r.at - 2] === " ";
    r.at++;
    r.parts.push(hard ? {type: "break"} : "\n");
}

// Runs of backticks, read once from the end: for each where the next of its length begins.
function findClosers(text) {
    const next = new Map(),
        closers = new Map();
    let end = text.length;
    while ((end = text.lastIndexOf("`", end - 1)) >= 0) {
        let start = end;
        while (start > 0 && text[start - 1] === "`") start--;
        const length = end - start + 1;
        if (next.has(length)) closers.set(start, next.get(length));
        next.set(length, start);
        end = start;
        if (!end) break;
    }
    return closers;
}

function readCodeSpan(r) {
    r.closers ??= findClosers(r.text);
    let length = 1;
    while (r.text[r.at + length] === "`") length++;
    const closer = r.closers.get(r.at);
    if (closer === undefined) {
        r.parts.push(r.text.slice(r.at, r.at + length));
        r.at += length;
        return;
    }
    let code = r.text.slice(r.at + length, closer).replace(/\n/g, " ");
    if (code.startsWith(" ") && code.endsWith(" ") && code.trim()) code = code.slice(1, -1);
    r.parts.push({type: "code", text: code});
    r.at = closer + length;
}

// A run that may open or close emphasis, by what is beside it. Long ones are ornaments.
function readMarks(r) {
    const mark = r.text[r.at],
        start = r.at;
    while (r.text[r.at] === mark) r.at++;
    const count = r.at - start,
        before = r.text[start - 1] ?? " ",
        after = r.text[r.at] ?? " ";
    const opens = !/\s/.test(after) && (!PUNCTUATION.test(after) || !LETTER.test(before));
    const closes = !/\s/.test(before) && (!PUNCTUATION.test(before) || !LETTER.test(after));
    const inWord = mark === "_" && LETTER.test(before) && LETTER.test(after);
    if (count > 3 || inWord || (mark === "~" && count !== 2) || !(opens || closes))
        r.parts.push(r.text.slice(start, r.at));
    else r.parts.push({type: "marks", mark, count, opens, closes});
}

function readOpening(r) {
    if (r.text[r.at] === "!" && r.text[r.at + 1] !== "[") return readCharacter(r);
    r.brackets.push(r.parts.length);
    const start = r.at;
    r.at += r.text[r.at] === "!" ? 2 : 1;
    r.parts.push(r.text.slice(start, r.at));
}

function readClosing(r) {
    const opening = r.brackets.pop();
    r.at++;
    const start = r.at,
        link = opening === undefined || r.text[r.at] !== "(" ? null : match(LINK, r);
    const href = link && safeHref(link[1].replace(/^<|>$/g, ""));
    if (!href) {
        r.at = start;
        r.parts.push("]");
        return;
    }
    const children = pair(r.parts.splice(opening).slice(1));
    r.brackets.length = 0; // no links within links
    r.parts.push({type: "link", href, children: children.length ? children : [href]});
}

function readAngle(r) {
    const address = match(URL_MARKED, r),
        href = address && safeHref(address[1]);
    if (href) r.parts.push({type: "link", href, children: [address[1]]});
    else if (address) r.parts.push(address[0]);
    else if (match(BREAK, r)) r.parts.push({type: "break"});
    else readCharacter(r);
}

function readAddress(r) {
    const start = r.at,
        address = LETTER.test(r.text[r.at - 1] ?? " ") ? null : match(URL_BARE, r);
    if (!address) return readCharacter(r);
    const text = withoutTail(address[0]),
        href = safeHref(text);
    r.at = start + text.length;
    r.parts.push(href && !r.brackets.length ? {type: "link", href, children: [text]} : text);
}

// A sentence's end does not belong to an address; nor a bracket that was opened before it.
function withoutTail(text) {
    let end = text.length;
    while (
        end > 8 &&
        (/[.,;:!?*_~\]]/.test(text[end - 1]) || (text[end - 1] === ")" && !text.slice(0, end).includes("(")))
    )
        end--;
    return text.slice(0, end);
}

export function safeHref(text) {
    if (!/^https?:\/\//i.test(text) || text.length > 4000) return null;
    try {
        return new URL(text).href;
    } catch {
        return null;
    }
}

// ---- Emphasis ----

// Marks find their partners: one stack for each mark, so that looking takes one step. At most OPEN_MAX are open at
// once.
function pair(parts) {
    const out = [],
        stacks = {"*": [], _: [], "~": []};
    const open = () => stacks["*"].length + stacks._.length + stacks["~"].length;
    for (const part of parts) {
        if (part.type !== "marks") {
            out.push(part);
            continue;
        }
        const marks = {...part},
            stack = stacks[marks.mark];
        while (marks.closes && marks.count && stack.length) closeMarks(out, stacks, marks);
        if (!marks.count) continue;
        if (marks.opens && open() < OPEN_MAX) stack.push(out.length);
        out.push(marks);
    }
    return joinText(out);
}

function closeMarks(out, stacks, marks) {
    const stack = stacks[marks.mark],
        at = stack.at(-1),
        opener = out[at];
    const count = Math.min(2, opener.count, marks.count);
    const type = marks.mark === "~" ? "del" : count === 2 ? "strong" : "em";
    const node = {type, children: joinText(out.splice(at + 1))};
    for (const other of Object.values(stacks)) while (other.length && other.at(-1) > at) other.pop();
    opener.count -= count;
    marks.count -= count;
    if (!opener.count) {
        stack.pop();
        out.pop();
    }
    out.push(node);
}

// What is left of marks becomes text; neighbouring texts become one.
function joinText(parts) {
    const out = [];
    let text = [];
    const flush = () => {
        if (text.length) out.push(text.join(""));
        text = [];
    };
    for (const part of parts) {
        if (typeof part === "string") text.push(part);
        else if (part.type === "marks") text.push(part.mark.repeat(part.count));
        else {
            flush();
            out.push(part);
        }
    }
    flush();
    return out;
}
