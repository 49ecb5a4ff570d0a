/* SPDX-License-Identifier: Apache-2.0 */
/* Small models: the first station keeps the embedding, the last one the head (`embed`, `head` of the cluster
 * file). To the stage it is a shard with all ids, and its only one; the shards, if there are any, serve the
 * other stage.
 *
 *   ranges   station 0 .. S - 1 | shard 0 .. M - 1 | all ids at station 0 | all ids at station S - 1
 *
 * The nodes belong to the station's range; the range of ids has the same, with an active one of its own: it keeps
 * nothing between calls, so that whoever is there may answer. */
#include "cluster/pipeline_state.h"

static const ClusterNode *station(const Pipeline *p, uint32_t part)
{
    const ClusterFile *file = p->config.cluster;
    return &file->nodes[cluster_file_part(file, CLUSTER_STATION, part)];
}

void pipeline_ends_count(Pipeline *p)
{
    p->shards = p->config.cluster->parts[CLUSTER_SHARD];
    p->embed_end = station(p, 0)->embed ? p->shards++ : NONE;
    p->head_end = station(p, p->stations - 1)->head ? p->shards++ : NONE;
}

uint32_t pipeline_ends_part(const Pipeline *p, uint32_t shard, uint32_t node)
{
    if (shard < pipeline_ends_first(p)) return shard;
    return node == PIPELINE_OWN ? PIPELINE_ALL_IDS : p->config.cluster->nodes[node].part;
}

void pipeline_ends_take(Pipeline *p)
{
    for (uint32_t i = pipeline_ends_first(p); i < p->shards; i++) {
        Range *r = pipeline_shard(p, i);
        const Range *of = pipeline_station(p, i == p->embed_end ? 0 : p->stations - 1);
        *r = (Range){.first = of->first, .count = of->count, .active = of->active};
        r->terms.shard = pipeline_build_shard_terms(p, 0, p->config.hyper->vocabulary);
    }
}

void pipeline_ends_follow(Pipeline *p, const Range *of)
{
    for (uint32_t i = pipeline_ends_first(p); i < p->shards; i++) {
        Range *r = pipeline_shard(p, i);
        if (r->first == of->first) r->none_since_ns = of->none_since_ns;
    }
}
