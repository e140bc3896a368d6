{{- define "varve.name" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{- define "varve.selector" -}}
app.kubernetes.io/name: varve
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "varve.labels" -}}
{{ include "varve.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "varve.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* Bytes of a size, as a number in a text. Without a unit of `units` it is empty. */}}
{{- define "varve.bytes" -}}
{{- $unit := regexReplaceAll "^[0-9.]+" .size "" }}
{{- if hasKey .units $unit }}
{{- mulf (regexFind "^[0-9.]+" .size | float64) (get .units $unit) }}
{{- end }}
{{- end }}

{{- /* Fails if the volume has no room for what the server retains: it would fill up before anything is removed. */}}
{{- define "varve.checkSizes" -}}
{{- $Ki := 1024.0 }}
{{- $Mi := mulf $Ki $Ki }}
{{- $Gi := mulf $Mi $Ki }}
{{- $Ti := mulf $Gi $Ki }}
{{- $retained := dig "storage" "tsdb" "retention" "size" .Values.retention.size .Values.config }}
{{- $flagUnits := dict "" 1.0 "B" 1.0 "KB" $Ki "KiB" $Ki "MB" $Mi "MiB" $Mi "GB" $Gi "GiB" $Gi "TB" $Ti "TiB" $Ti }}
{{- $volumeUnits := dict "" 1.0 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" $Ki "Mi" $Mi "Gi" $Gi "Ti" $Ti }}
{{- $retainedBytes := include "varve.bytes" (dict "size" (toString $retained) "units" $flagUnits) }}
{{- $volumeBytes := include "varve.bytes" (dict "size" (toString .Values.persistence.size) "units" $volumeUnits) }}
{{- if and $retainedBytes $volumeBytes }}
{{- if ge (float64 $retainedBytes) (float64 $volumeBytes) }}
{{- fail (printf "retention.size %s does not fit a volume of persistence.size %s: make the volume 15 %% larger than what is retained" (toString $retained) (toString .Values.persistence.size)) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "varve.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
# Not at every start: a data directory has many files.
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "varve.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
