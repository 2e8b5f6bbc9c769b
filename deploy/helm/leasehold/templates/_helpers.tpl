{{/* The labels of Helm. Selectors have none of them: they are those of deploy/base. */}}
{{- define "leasehold.labels" -}}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The labels of what Prometheus selects: a list of the context and the user's, which win. */}}
{{- define "leasehold.monitoringLabels" -}}
{{- $ours := include "leasehold.labels" (first .) | fromYaml }}
{{- $name := dict "app.kubernetes.io/name" "leasehold" }}
{{- merge dict (last .) $ours $name | toYaml }}
{{- end }}

{{/* What selects the pods of a component: a list of the context and its name. */}}
{{- define "leasehold.selector" -}}
app.kubernetes.io/name: leasehold
app.kubernetes.io/component: {{ last . }}
{{- end }}

{{/* The image of a component: a list of the context and its name. */}}
{{- define "leasehold.image" -}}
{{- $root := first . }}
{{- $component := last . }}
{{- $image := (index $root.Values $component).image }}
{{- if and $image.tag $image.digest }}
{{- fail (printf "%s.image: write tag or digest, not both" $component) }}
{{- end }}
{{- if $image.digest }}
{{- printf "%s@%s" $image.repository $image.digest }}
{{- else }}
{{- printf "%s:%s" $image.repository ($image.tag | default $root.Chart.AppVersion) }}
{{- end }}
{{- end }}

{{/* The metadata of the pods of a component: a list of the context and its name. */}}
{{- define "leasehold.podMetadata" -}}
{{- $component := last . }}
{{- $values := index (first .).Values $component }}
{{- range list "app.kubernetes.io/name" "app.kubernetes.io/component" }}
{{- if hasKey $values.podLabels . }}
{{- fail (printf "%s.podLabels: %s is the chart's, which selects the pods by it" $component .) }}
{{- end }}
{{- end }}
labels:
  {{- include "leasehold.selector" . | nindent 2 }}
  {{- with $values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Where the pods of a component run: a list of the context and its name. */}}
{{- define "leasehold.placement" -}}
{{- $root := first . }}
{{- $values := index $root.Values (last .) }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The flags for logs of a component: a list of the context and its name. */}}
{{- define "leasehold.logFlags" -}}
{{- $values := index (first .).Values (last .) }}
{{- with $values.log }}
- {{ printf "--log=%s" . | quote }}
{{- end }}
{{- if ne $values.logFormat "text" }}
- --log-format={{ $values.logFormat }}
{{- end }}
{{- end }}

{{/* The security context of what needs nothing of its node. */}}
{{- define "leasehold.unprivileged" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 65532
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end }}
