{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}
{{- /* The cluster file, made of a plan or of numbers; who is in it, and what that costs. */ -}}

{{- define "cobord.fullname" -}}
{{- if contains "cobord" .Release.Name -}}{{ .Release.Name | trunc 36 | trimSuffix "-" }}
{{- else -}}{{ printf "%s-cobord" (.Release.Name | trunc 29 | trimSuffix "-") }}{{ end -}}
{{- end -}}

{{- /* A quantity, 128Mi or 134217728, in bytes. */ -}}
{{- define "cobord.bytes" -}}
{{- if not (kindIs "string" .) -}}{{ int64 . }}
{{- else if hasSuffix "Gi" . -}}{{ mul (trimSuffix "Gi" . | int64) 1073741824 }}
{{- else if hasSuffix "Mi" . -}}{{ mul (trimSuffix "Mi" . | int64) 1048576 }}
{{- else if hasSuffix "Ki" . -}}{{ mul (trimSuffix "Ki" . | int64) 1024 }}
{{- else -}}{{ int64 . }}{{ end -}}
{{- end -}}

{{- /* "station-3" of (dict "id"): its role. */ -}}
{{- define "cobord.role" -}}{{ regexReplaceAll "-[0-9]+$" . "" }}{{- end -}}

{{- define "cobord.port" -}}
{{- get (dict "coordinator" "8080" "station" "9000" "shard" "9100" "layer-warden" "9200" "shard-warden" "9300") . -}}
{{- end -}}

{{- /* Where the node of (dict "root" "id") listens: its pod's own name. The coordinator has no name of its own: it is
       reached through a Service and listens on all its addresses. */ -}}
{{- define "cobord.address" -}}
{{- $role := include "cobord.role" .id -}}
{{- if eq $role "coordinator" -}}0.0.0.0:{{ include "cobord.port" $role }}
{{- else -}}
{{- $name := include "cobord.fullname" .root -}}
{{- printf "%s-%s.%s-%s.%s.svc.%s:%s" $name .id $name $role .root.Release.Namespace .root.Values.clusterDomain (include "cobord.port" $role) -}}
{{- end -}}
{{- end -}}

{{- /* "0-15" of (dict "part" "parts" "layers"). */ -}}
{{- define "cobord.range" -}}
{{- $first := div (mul .layers .part) .parts -}}
{{- $last := div (mul .layers (add .part 1)) .parts -}}
{{- if eq (int64 $last) (int64 .layers) -}}{{ $first }}-end{{ else -}}{{ $first }}-{{ $last }}{{ end -}}
{{- end -}}

{{- /* Replicas of part .part: ids behind those of the parts. */ -}}
{{- define "cobord.replicas" -}}
{{- $dot := . -}}{{- $list := list -}}
{{- range $k := until (int .replicas) -}}
{{- $list = append $list (dict "id" (printf "%s-%d" $dot.role (int (add (mul $dot.parts (add $k 1)) $dot.part)))) -}}
{{- end -}}
{{- toJson $list -}}
{{- end -}}

{{- define "cobord.stations" -}}
{{- $c := .Values.cluster -}}{{- $parts := int $c.stations -}}{{- $list := list -}}{{- $model := .Values.model -}}
{{- if and $c.stationRanges (ne (len $c.stationRanges) $parts) -}}
{{- fail (printf "cluster.stationRanges has %d ranges for %d stations" (len $c.stationRanges) $parts) -}}
{{- end -}}
{{- range $i := until $parts -}}
{{- $range := include "cobord.range" (dict "part" $i "parts" $parts "layers" (int64 $model.layers)) -}}
{{- if $c.stationRanges }}{{ $range = index $c.stationRanges $i }}{{ end -}}
{{- $node := dict "id" (printf "station-%d" $i) "range" $range -}}
{{- if $c.replicas }}{{ $_ := set $node "replicas" (include "cobord.replicas" (dict "role" "station" "part" $i "parts" $parts "replicas" $c.replicas) | fromJsonArray) }}{{ end -}}
{{- if $c.wardens }}{{ $_ := set $node "warden" (printf "layer-warden-%d" $i) }}{{ end -}}
{{- if not (int $c.shards) -}}
{{- if eq $i 0 }}{{ $_ := set $node "embed" true }}{{ end -}}
{{- if eq $i (sub $parts 1 | int) }}{{ $_ := set $node "head" true }}{{ end -}}
{{- end -}}
{{- $list = append $list $node -}}
{{- end -}}
{{- toJson $list -}}
{{- end -}}

{{- define "cobord.shards" -}}
{{- $c := .Values.cluster -}}{{- $parts := int $c.shards -}}{{- $list := list -}}{{- $ids := int64 .Values.model.vocabulary -}}
{{- if and $c.shardIds (ne (len $c.shardIds) $parts) -}}
{{- fail (printf "cluster.shardIds has %d ranges for %d shards" (len $c.shardIds) $parts) -}}
{{- end -}}
{{- range $i := until $parts -}}
{{- $range := list (div (mul $ids $i) $parts) (div (mul $ids (add $i 1)) $parts) -}}
{{- if $c.shardIds }}{{ $range = index $c.shardIds $i }}{{ end -}}
{{- $node := dict "id" (printf "shard-%d" $i) "ids" $range -}}
{{- if $c.replicas }}{{ $_ := set $node "replicas" (include "cobord.replicas" (dict "role" "shard" "part" $i "parts" $parts "replicas" $c.replicas) | fromJsonArray) }}{{ end -}}
{{- if $c.wardens }}{{ $_ := set $node "warden" "shard-warden-0" }}{{ end -}}
{{- $list = append $list $node -}}
{{- end -}}
{{- toJson $list -}}
{{- end -}}

{{- /* The file of the numbers in the values. */ -}}
{{- define "cobord.computed" -}}
{{- $c := .Values.cluster -}}{{- $m := .Values.model -}}
{{- $stations := include "cobord.stations" . | fromJsonArray -}}{{- $shards := include "cobord.shards" . | fromJsonArray -}}
{{- $file := dict "cobord_cluster" 1 "memory" (include "cobord.bytes" $c.memory | int64)
    "warden_memory" (include "cobord.bytes" $c.wardenMemory | int64) "context" (int64 $c.context)
    "sessions" (int64 $c.sessions) "chunk" (int64 $c.chunk) "cache_type" $c.cacheType "element" $c.element
    "pipeline" (int64 $c.pipeline) "coordinator" (dict "id" "coordinator-0") "stations" $stations "shards" $shards
    "model" (dict "name" $m.name "knot_id" $m.knotId "knot_key" $m.knotKey "layers" (int64 $m.layers)
        "vocabulary" (int64 $m.vocabulary)) -}}
{{- if $c.wardens -}}
{{- $wardens := list -}}
{{- range $i, $s := $stations -}}
{{- $wardens = append $wardens (dict "id" (printf "layer-warden-%d" $i) "range" $s.range) -}}
{{- end -}}
{{- $_ := set $file "layer_wardens" $wardens -}}
{{- $_ := set $file "shard_wardens" (ternary (list (dict "id" "shard-warden-0" "ids" (list 0 (int64 $m.vocabulary)))) list (gt (len $shards) 0)) -}}
{{- end -}}
{{- toJson $file -}}
{{- end -}}

{{- /* The plan that was given, or the computed file; what both lack is put in: addresses, store, key, TLS. */ -}}
{{- define "cobord.cluster" -}}
{{- $root := . -}}{{- $v := .Values -}}{{- $file := dict -}}
{{- if $v.cluster.plan -}}
{{- $file = fromJson $v.cluster.plan -}}
{{- if or $file.Error (not $file.cobord_cluster) -}}{{ fail "cluster.plan is no file of `cobord plan -o`: give it with --set-file cluster.plan=FILE" }}{{- end -}}
{{- else -}}{{- $file = include "cobord.computed" . | fromJson -}}{{- end -}}
{{- range $list := list (list $file.coordinator) $file.stations $file.shards ($file.layer_wardens | default list) ($file.shard_wardens | default list) -}}
{{- range $node := $list -}}
{{- $_ := set $node "address" (include "cobord.address" (dict "root" $root "id" $node.id)) -}}
{{- $_ := unset $node "socket" -}}
{{- range $other := $node.replicas | default list }}{{ $_ := set $other "address" (include "cobord.address" (dict "root" $root "id" $other.id)) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- $_ := set $file.model "store" $v.model.store -}}
{{- if and $file.layer_wardens (not $v.model.store) -}}{{ fail "wardens read from a store: set model.store" }}{{- end -}}
{{- $_ := set $file "key_file" "/etc/cobord/key/cluster-key" -}}
{{- if $v.tls.existingSecret }}{{ $_ := set $file "tls" (dict "certificate" "/etc/cobord/tls/tls.crt" "key" "/etc/cobord/tls/tls.key" "ca" "/etc/cobord/tls/ca.crt") }}{{ else }}{{ $_ := unset $file "tls" }}{{ end -}}
{{- toJson $file -}}
{{- end -}}

{{- /* How many nodes (dict "file" "role") has, replicas with them; their numbers must have no gap: pods' have none. */ -}}
{{- define "cobord.count" -}}
{{- $role := .role -}}{{- $ids := list -}}
{{- range $node := get .file (printf "%ss" (replace "-" "_" $role)) | default list -}}
{{- $ids = append $ids $node.id -}}
{{- range $node.replicas | default list }}{{ $ids = append $ids .id }}{{ end -}}
{{- end -}}
{{- range $i := until (len $ids) -}}
{{- if not (has (printf "%s-%d" $role $i) $ids) -}}{{ fail (printf "the plan has %d of %s and no %s-%d" (len $ids) $role $role $i) }}{{- end -}}
{{- end -}}
{{- len $ids -}}
{{- end -}}
