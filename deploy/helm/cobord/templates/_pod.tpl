{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}
{{- /* What all pods have alike. Each takes (dict "root" "role" "file" "settings"). */ -}}

{{- define "cobord.selector" -}}
app.kubernetes.io/name: cobord
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .role }}
{{- end -}}

{{- define "cobord.labels" -}}
{{ include "cobord.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{- define "cobord.meta" -}}
labels:
  {{- include "cobord.labels" . | nindent 2 }}
  {{- with .root.Values.podLabels }}{{ toYaml . | nindent 2 }}{{ end }}
annotations:
  checksum/cluster: {{ .file | toJson | sha256sum }}
  {{- with .root.Values.podAnnotations }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end -}}

{{- /* The plan's budget and what the kernel takes beside it. Nothing may be borrowed from swap or from others. */ -}}
{{- define "cobord.limit" -}}
{{- $budget := ternary (.file.warden_memory | default 134217728) (.file.memory | default 134217728) (hasSuffix "warden" .role) -}}
{{- add (int64 $budget) (include "cobord.bytes" .root.Values.memoryOverhead | int64) -}}
{{- end -}}

{{- define "cobord.resources" -}}
{{- $limit := include "cobord.limit" . -}}
{{- $own := .settings.resources | default dict -}}
{{- toYaml (dict "requests" (merge (dict "memory" $limit) ($own.requests | default dict)) "limits" (merge (dict "memory" $limit) ($own.limits | default dict))) -}}
{{- end -}}

{{- define "cobord.image" -}}
{{ .root.Values.image.repository }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- end -}}

{{- define "cobord.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "cobord.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
privileged: false
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "cobord.scheme" -}}{{ ternary "HTTPS" "HTTP" (ne .root.Values.tls.existingSecret "") }}{{- end -}}

{{- define "cobord.env" -}}
- {name: COBORD_CACHE, value: /var/cache/cobord}
- {name: HOME, value: /var/cache/cobord}
{{- range $name, $value := .root.Values.model.storeEnv }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- with .settings.extraEnv }}{{ toYaml . | nindent 0 }}{{ end }}
{{- end -}}

{{- define "cobord.envFrom" -}}
{{- with .root.Values.model.storeSecret }}
envFrom:
  - secretRef: {name: {{ . }}}
{{- end }}
{{- end -}}

{{- define "cobord.mounts" -}}
- {name: cluster, mountPath: /etc/cobord/cluster, readOnly: true}
- {name: key, mountPath: /etc/cobord/key, readOnly: true}
- {name: cache, mountPath: /var/cache/cobord}
{{- if .root.Values.tls.existingSecret }}
- {name: tls, mountPath: /etc/cobord/tls, readOnly: true}
{{- end }}
{{- if .root.Values.model.volume }}
- {name: models, mountPath: /srv/models, readOnly: true}
{{- end }}
{{- end -}}

{{- define "cobord.volumes" -}}
- {name: cluster, configMap: {name: {{ include "cobord.fullname" .root }}}}
- name: key
  secret:
    secretName: {{ .root.Values.clusterKey.existingSecret | default (printf "%s-key" (include "cobord.fullname" .root)) }}
    defaultMode: 0440
    items: [{key: cluster-key, path: cluster-key}]
{{- with .root.Values.tls.existingSecret }}
- {name: tls, secret: {secretName: {{ . }}, defaultMode: 0440}}
{{- end }}
{{- with .root.Values.model.volume }}
- name: models
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Without a store a pod brings the model itself. */ -}}
{{- define "cobord.pull" -}}
{{- if not .file.model.store }}
initContainers:
  - name: pull
    image: {{ include "cobord.image" . }}
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    args: [pull, {{ .file.model.name | quote }}]
    env:
      {{- include "cobord.env" . | nindent 6 }}
    securityContext:
      {{- include "cobord.security" . | nindent 6 }}
    resources: {requests: {memory: 512Mi, cpu: 250m}, limits: {memory: 512Mi}}
    volumeMounts:
      - {name: cache, mountPath: /var/cache/cobord}
{{- end }}
{{- end -}}

{{- define "cobord.placement" -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- if .root.Values.affinity }}
affinity: {{ toYaml .root.Values.affinity | nindent 2 }}
{{- else }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "cobord.selector" . | nindent 8 }}
{{- end }}
{{- end -}}
