package config

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

const minimal = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: c
    image: local/web:1
`

const full = `
apiVersion: v1
kind: Pod
metadata:
  name: full
  namespace: apps
  uid: given
  labels: {app: full}
spec:
  hostNetwork: true
  tolerations:
  - {key: other, operator: Exists}
  volumes:
  - {name: scratch}
  - {name: host, hostPath: {path: /tmp}}
  - {name: info, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}
  - name: all
    projected:
      sources:
      - downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}
  initContainers:
  - {name: init, image: tool, restartPolicy: Always}
  containers:
  - name: c
    image: registry:5000/web
    env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
    ports: [{name: http, containerPort: 80}]
    resources:
      limits: {cpu: "2", memory: 64Mi}
      requests: {cpu: "1"}
    volumeMounts: [{name: scratch, mountPath: /s, subPath: a/b}]
    livenessProbe: {httpGet: {port: http}, periodSeconds: 3}
    readinessProbe: {grpc: {port: 9}}
`

func TestParse(t *testing.T) {
	pods, err := parse([]byte(full), pod.FileSource, "/m/full.yaml", "Node-A")
	if err != nil || len(pods) != 1 {
		t.Fatal(pods, err)
	}
	p := pods[0]
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"name", p.Name + "_" + p.Namespace, "full-node-a_apps"},
		{"UID", string(p.UID), "given"},
		{"node", p.Spec.NodeName, "Node-A"},
		{"phase", p.Status.Phase, v1.PodPending},
		{"annotations", p.Annotations, map[string]string{pod.ConfigHashAnnotation: "given"}},
		{"tolerations", p.Spec.Tolerations, []v1.Toleration{
			{Key: "other", Operator: v1.TolerationOpExists}, {Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute},
		}},
		{"policies", []any{p.Spec.RestartPolicy, p.Spec.DNSPolicy}, []any{v1.RestartPolicyAlways, v1.DNSClusterFirst}},
		{"grace", *p.Spec.TerminationGracePeriodSeconds, int64(30)},
		{"security context", p.Spec.SecurityContext, &v1.PodSecurityContext{}},
		{"empty volume", p.Spec.Volumes[0].EmptyDir, &v1.EmptyDirVolumeSource{}},
		{"pull policies", []v1.PullPolicy{p.Spec.InitContainers[0].ImagePullPolicy, p.Spec.Containers[0].ImagePullPolicy}, []v1.PullPolicy{v1.PullAlways, v1.PullAlways}},
		{"termination", p.Spec.Containers[0].TerminationMessagePath + " " + string(p.Spec.Containers[0].TerminationMessagePolicy), "/dev/termination-log File"},
		{"port", p.Spec.Containers[0].Ports[0], v1.ContainerPort{Name: "http", ContainerPort: 80, HostPort: 80, Protocol: v1.ProtocolTCP}},
		{"requests", p.Spec.Containers[0].Resources.Requests.Cpu().String() + " " + p.Spec.Containers[0].Resources.Requests.Memory().String(), "1 64Mi"},
		{"liveness", p.Spec.Containers[0].LivenessProbe, &v1.Probe{
			ProbeHandler:   v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/", Port: intstr.FromString("http"), Scheme: v1.URISchemeHTTP}},
			TimeoutSeconds: 1, PeriodSeconds: 3, SuccessThreshold: 1, FailureThreshold: 3,
		}},
		{"gRPC service", *p.Spec.Containers[0].ReadinessProbe.GRPC.Service, ""},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s: %s", c.what, diff)
		}
	}
}

func TestUID(t *testing.T) {
	uid := func(manifest, source, origin, node string) string {
		pods, err := parse([]byte(manifest), source, origin, node)
		if err != nil {
			t.Fatal(err)
		}
		p := pods[0]
		if p.Annotations[pod.ConfigHashAnnotation] != string(p.UID) {
			t.Errorf("hash %q is not the UID %q", p.Annotations[pod.ConfigHashAnnotation], p.UID)
		}
		return string(p.UID)
	}
	first := uid(minimal, "file", "/m/a", "n")
	if len(first) != 32 || strings.Trim(first, "0123456789abcdef") != "" {
		t.Errorf("UID %q is not the hexadecimal form of 128 bits", first)
	}
	spelled := strings.Replace(minimal, "spec:\n", "spec:\n  restartPolicy: Always\n", 1)
	for _, same := range []string{uid(minimal, "file", "/m/a", "n"), uid("# edited\n"+minimal, "file", "/m/a", "n"), uid(spelled, "file", "/m/a", "n")} {
		if same != first {
			t.Errorf("UID %s of the same pod, want %s", same, first)
		}
	}
	for what, other := range map[string]string{
		"edited": uid(strings.Replace(minimal, ":1", ":2", 1), "file", "/m/a", "n"), "other file": uid(minimal, "file", "/m/b", "n"),
		"other node": uid(minimal, "file", "/m/a", "o"), "URL": uid(minimal, "http", "/m/a", "n"),
	} {
		if other == first {
			t.Errorf("%s: the same UID", what)
		}
	}
}

func TestParseErrors(t *testing.T) {
	const head = "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: "
	cases := []struct{ name, manifest, want string }{
		{"neither", "a: [", "/m/x: this is neither YAML nor JSON: "},
		{"no kind", "{}", "write a pod, with apiVersion: v1 and kind: Pod"},
		{"unknown kind", "{apiVersion: v9, kind: Pod}", "write a pod, with apiVersion: v1 and kind: Pod"},
		{"other kind", "{apiVersion: v1, kind: Service}", "/m/x: this is a Service: only pods can be run from a manifest"},
		{"ConfigMap", "{apiVersion: v1, kind: ConfigMap}", "/m/x: this is a ConfigMap or Secret, not a pod"},
		{"wrong type", "{apiVersion: v1, kind: Pod, spec: {containers: 7}}", "containers"},
		{"no name", "{apiVersion: v1, kind: Pod}", `metadata.name "-n": `},
		{"bad name", "{apiVersion: v1, kind: Pod, metadata: {name: Web}, spec: {containers: [{name: c, image: i}]}}", `metadata.name "Web-n": `},
		{"no containers", head + "{}}", "/m/x: invalid pod: spec.containers is empty"},
		{"no image", head + "{containers: [{name: c}]}}", `/m/x: invalid pod: container "c" has no image`},
		{"no container name", head + "{containers: [{image: i}]}}", `/m/x: invalid pod: spec.containers.name "": `},
		{"twins", head + "{initContainers: [{name: c, image: i}], containers: [{name: c, image: i}]}}", `spec.containers.name "c": more than one`},
		{"volume", head + "{volumes: [{name: ../x}]}}", `spec.volumes.name "../x": `},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := parse([]byte("---\n"+c.manifest), pod.FileSource, "/m/x", "n")
			if err == nil {
				t.Fatal("no error")
			}
			if !strings.HasPrefix(err.Error(), "/m/x: ") || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q, want one line with %q", err, c.want)
			}
		})
	}
}

func TestLatest(t *testing.T) {
	for image, want := range map[string]bool{
		"web": true, "web:latest": true, "reg:5000/web": true, "web:1": false, "reg:5000/web:1": false,
		"web@sha256:abc": false, "web:latest@sha256:abc": true, "": true,
	} {
		if got := latest(image); got != want {
			t.Errorf("latest(%q) = %v", image, got)
		}
	}
}

func FuzzParsePod(f *testing.F) {
	for _, seed := range []string{minimal, full, "{}", "a: [", "{apiVersion: v1, kind: PodList, items: [{metadata: {name: a}}]}", "---\n---\n", "&a [*a]"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		pods, err := parse(data, pod.FileSource, "/m/x", "n")
		if err != nil {
			if !strings.HasPrefix(err.Error(), "/m/x: ") {
				t.Errorf("error without the file's name: %q", err)
			}
			return
		}
		again, err := parse(data, pod.FileSource, "/m/x", "n")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(pods, again); diff != "" {
			t.Errorf("parsed twice: %s", diff)
		}
		for _, p := range pods {
			if _, err := json.Marshal(p); err != nil {
				t.Error(err)
			}
			if p.UID == "" || p.Spec.NodeName != "n" || len(p.Spec.Containers) == 0 || p.Spec.TerminationGracePeriodSeconds == nil {
				t.Errorf("not complete: %v", p)
			}
			// The same pod again is no change.
			has, _ := merge("file", nil, []*v1.Pod{p}, "t")
			if _, c := merge("file", has, []*v1.Pod{p}, "t"); len(c) > 0 {
				t.Errorf("changes without a change: %v", c)
			}
		}
	})
}
