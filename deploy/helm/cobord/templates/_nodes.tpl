{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}
{{- /* The nodes of one role: a StatefulSet whose pod N is node ROLE-N, and the Service that gives pods their names.
       Takes (dict "root" "role" "file" "settings"). */ -}}
{{- define "cobord.nodes" -}}
{{- $count := include "cobord.count" . | int -}}
{{- if $count }}
{{- $name := printf "%s-%s" (include "cobord.fullname" .root) .role }}
{{- $port := include "cobord.port" .role | int }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ $name }}
  labels:
    {{- include "cobord.labels" . | nindent 4 }}
spec:
  clusterIP: None
  publishNotReadyAddresses: true # who is not ready yet says so itself
  selector:
    {{- include "cobord.selector" . | nindent 4 }}
  ports:
    - {name: node, port: {{ $port }}, targetPort: node}
---
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{ $name }}
  labels:
    {{- include "cobord.labels" . | nindent 4 }}
spec:
  serviceName: {{ $name }}
  replicas: {{ $count }}
  podManagementPolicy: Parallel # nodes do not wait for each other
  selector:
    matchLabels:
      {{- include "cobord.selector" . | nindent 6 }}
  template:
    metadata:
      {{- include "cobord.meta" . | nindent 6 }}
    spec:
      automountServiceAccountToken: false
      enableServiceLinks: false
      terminationGracePeriodSeconds: {{ .root.Values.terminationGracePeriodSeconds }}
      securityContext:
        {{- include "cobord.podSecurity" . | nindent 8 }}
      {{- include "cobord.placement" . | nindent 6 }}
      {{- include "cobord.pull" . | nindent 6 }}
      containers:
        - name: {{ .role }}
          image: {{ include "cobord.image" . }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args:
            - node
            - --cluster=/etc/cobord/cluster/cluster.json
            - --id={{ .role }}-$(POD_INDEX)
            {{- if .settings.threads }}
            - --threads={{ .settings.threads }}
            {{- end }}
          env:
            - name: POD_INDEX
              valueFrom: {fieldRef: {fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']"}}
            {{- include "cobord.env" . | nindent 12 }}
          {{- include "cobord.envFrom" . | nindent 10 }}
          ports:
            - {name: node, containerPort: {{ $port }}}
          # Alive is who answers at all; a slice that is being fetched takes its time, and is no reason to begin again.
          startupProbe:
            httpGet: {path: /health, port: node, scheme: {{ include "cobord.scheme" . }}}
            periodSeconds: 2
            failureThreshold: 150
          livenessProbe:
            httpGet: {path: /health, port: node, scheme: {{ include "cobord.scheme" . }}}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 6
          readinessProbe: # /ready wants the cluster's key
            exec:
              command: [sh, -c, "exec cobord ready --cluster=/etc/cobord/cluster/cluster.json --id={{ .role }}-$POD_INDEX"]
            periodSeconds: 5
            timeoutSeconds: 5
          securityContext:
            {{- include "cobord.security" . | nindent 12 }}
          resources:
            {{- include "cobord.resources" . | nindent 12 }}
          volumeMounts:
            {{- include "cobord.mounts" . | nindent 12 }}
      volumes:
        {{- include "cobord.volumes" . | nindent 8 }}
        {{- if not .root.Values.cache.persistence }}
        - {name: cache, emptyDir: {sizeLimit: {{ .root.Values.cache.size }}}}
        {{- end }}
  {{- if .root.Values.cache.persistence }}
  volumeClaimTemplates:
    - apiVersion: v1
      kind: PersistentVolumeClaim
      metadata: {name: cache}
      spec:
        accessModes: [ReadWriteOnce]
        {{- with .root.Values.cache.storageClass }}
        storageClassName: {{ . }}
        {{- end }}
        resources: {requests: {storage: {{ .root.Values.cache.size }}}}
  {{- end }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ $name }}
  labels:
    {{- include "cobord.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1 # each range lost is an answer that waits
  selector:
    matchLabels:
      {{- include "cobord.selector" . | nindent 6 }}
{{- end }}
{{- end -}}
