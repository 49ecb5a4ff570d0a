/* SPDX-License-Identifier: Apache-2.0 */
/* A parsed template: nodes in an arena, children by pointer, rows of children chained by `next`. What the fields of a
 * node mean is said beside its type. */
#ifndef COBORD_TEXT_JINJA_TREE_H
#define COBORD_TEXT_JINJA_TREE_H

#include "text/jinja_value.h"

typedef enum JinjaType {
    /* expressions */
    JINJA_NODE_CONSTANT, /* value */
    JINJA_NODE_NAME,     /* text */
    JINJA_NODE_LIST,     /* list */
    JINJA_NODE_TUPLE,    /* list */
    JINJA_NODE_DICT,     /* list: key, value, key, value */
    JINJA_NODE_MEMBER,   /* a . text */
    JINJA_NODE_ITEM,     /* a [ b ] */
    JINJA_NODE_SLICE,    /* a [ list: from, to, step; constants None where left out ] */
    JINJA_NODE_CALL,     /* a ( list ) */
    JINJA_NODE_KEYWORD,  /* text = a, in a row of arguments */
    JINJA_NODE_FILTER,   /* a | text ( list ); a is NULL in a filter block's */
    JINJA_NODE_TEST,     /* a is text ( list ) */
    JINJA_NODE_NOT,      /* a */
    JINJA_NODE_MINUS,    /* a */
    JINJA_NODE_PLUS,     /* a */
    JINJA_NODE_AND,      /* a, b */
    JINJA_NODE_OR,       /* a, b */
    JINJA_NODE_CHOICE,   /* a if b else c, which may be NULL */
    JINJA_NODE_JOIN,     /* list: a ~ b ~ c */
    JINJA_NODE_MATH,     /* a op b */
    JINJA_NODE_COMPARE,  /* a, list: KEYWORD nodes, each an op and what stands behind it as a */
    /* statements */
    JINJA_NODE_TEXT,         /* text as it stands */
    JINJA_NODE_PRINT,        /* a */
    JINJA_NODE_IF,           /* list: branches */
    JINJA_NODE_BRANCH,       /* a (NULL for else), list */
    JINJA_NODE_FOR,          /* for a in b if c, list, other: the else */
    JINJA_NODE_SET,          /* a = b */
    JINJA_NODE_SET_BLOCK,    /* a, b: filters or NULL, list */
    JINJA_NODE_MACRO,        /* text, other: parameters, list */
    JINJA_NODE_PARAMETER,    /* text, a: default or NULL */
    JINJA_NODE_CALL_BLOCK,   /* a: the call, other: parameters, list */
    JINJA_NODE_FILTER_BLOCK, /* b: filters, list */
    JINJA_NODE_WITH,         /* other: NODE_SET, list */
    JINJA_NODE_GENERATION,   /* list */
    JINJA_NODE_BREAK,
    JINJA_NODE_CONTINUE
} JinjaType;

typedef enum JinjaOp {
    JINJA_OP_NONE,
    JINJA_OP_ADD,
    JINJA_OP_SUB,
    JINJA_OP_MUL,
    JINJA_OP_DIV,
    JINJA_OP_FLOOR,
    JINJA_OP_MOD,
    JINJA_OP_POW,
    JINJA_OP_EQ,
    JINJA_OP_NE,
    JINJA_OP_LT,
    JINJA_OP_LE,
    JINJA_OP_GT,
    JINJA_OP_GE,
    JINJA_OP_IN,
    JINJA_OP_NOT_IN
} JinjaOp;

typedef struct JinjaNode JinjaNode;
struct JinjaNode {
    JinjaType type;
    JinjaOp op;
    uint32_t offset; /* in the source, for errors */
    JinjaText text;
    JinjaValue value;
    JinjaNode *a, *b, *c, *list, *other, *next;
};

#endif
