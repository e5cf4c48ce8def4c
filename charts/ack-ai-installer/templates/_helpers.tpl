{{- define "ack-ai-installer.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.Version | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: cloud-native-ai-suite
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
{{- end -}}

{{- /* list $ part: the image of a part, by digest where one is given */ -}}
{{- define "ack-ai-installer.image" -}}
{{- $root := index . 0 -}}{{- $image := (index . 1).image -}}
{{- printf "%s/%s:%s" $root.Values.registry $image.repository $image.tag -}}
{{- with $image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{- /* What all pods share. The labels hold no version: a new chart version alone must not change a pod. */ -}}
{{- define "ack-ai-installer.pod" -}}
priorityClassName: system-node-critical
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* dict "name" "component" "root": metadata and selector of a DaemonSet */ -}}
{{- define "ack-ai-installer.daemonset" -}}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "ack-ai-installer.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  selector:
    matchLabels:
      name: {{ .name }}
{{- end -}}
