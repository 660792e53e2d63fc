package config

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

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
  - {operator: Exists, effect: NoExecute, tolerationSeconds: 5}
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
    lifecycle: {preStop: {httpGet: {port: 80}}}
`

func TestParsePod(t *testing.T) {
	p, err := ParsePod([]byte(full), pod.FileSource, "/m/full.yaml", "Node-A")
	if err != nil {
		t.Fatal(err)
	}
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
			{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}, {Key: "other", Operator: v1.TolerationOpExists},
		}},
		{"policies", []any{p.Spec.RestartPolicy, p.Spec.DNSPolicy, p.Spec.SchedulerName}, []any{v1.RestartPolicyAlways, v1.DNSClusterFirst, "default-scheduler"}},
		{"grace", *p.Spec.TerminationGracePeriodSeconds, int64(30)},
		{"service links", *p.Spec.EnableServiceLinks, true},
		{"security context", p.Spec.SecurityContext, &v1.PodSecurityContext{}},
		{"empty volume", p.Spec.Volumes[0].EmptyDir, &v1.EmptyDirVolumeSource{}},
		{"host path", *p.Spec.Volumes[1].HostPath.Type, v1.HostPathUnset},
		{"modes", []int32{*p.Spec.Volumes[2].DownwardAPI.DefaultMode, *p.Spec.Volumes[3].Projected.DefaultMode}, []int32{0o644, 0o644}},
		{"field refs", []string{
			p.Spec.Volumes[2].DownwardAPI.Items[0].FieldRef.APIVersion,
			p.Spec.Volumes[3].Projected.Sources[0].DownwardAPI.Items[0].FieldRef.APIVersion,
			p.Spec.Containers[0].Env[0].ValueFrom.FieldRef.APIVersion,
		}, []string{"v1", "v1", "v1"}},
		{"pull policies", []v1.PullPolicy{p.Spec.InitContainers[0].ImagePullPolicy, p.Spec.Containers[0].ImagePullPolicy}, []v1.PullPolicy{v1.PullAlways, v1.PullAlways}},
		{"termination", p.Spec.Containers[0].TerminationMessagePath + " " + string(p.Spec.Containers[0].TerminationMessagePolicy), "/dev/termination-log File"},
		{"port", p.Spec.Containers[0].Ports[0], v1.ContainerPort{Name: "http", ContainerPort: 80, HostPort: 80, Protocol: v1.ProtocolTCP}},
		{"requests", p.Spec.Containers[0].Resources.Requests.Cpu().String() + " " + p.Spec.Containers[0].Resources.Requests.Memory().String(), "1 64Mi"},
		{"liveness", p.Spec.Containers[0].LivenessProbe, &v1.Probe{
			ProbeHandler:   v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/", Port: intstr.FromString("http"), Scheme: v1.URISchemeHTTP}},
			TimeoutSeconds: 1, PeriodSeconds: 3, SuccessThreshold: 1, FailureThreshold: 3,
		}},
		{"gRPC service", *p.Spec.Containers[0].ReadinessProbe.GRPC.Service, ""},
		{"hook", *p.Spec.Containers[0].Lifecycle.PreStop.HTTPGet, v1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(80), Scheme: v1.URISchemeHTTP}},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s: %s", c.what, diff)
		}
	}
}

func TestParseVolumes(t *testing.T) {
	p, err := ParsePod([]byte(minimal+`
  volumes:
  - {name: s, secret: {secretName: s}}
  - {name: c, configMap: {name: c}}
  - {name: t, projected: {sources: [{serviceAccountToken: {path: token}}]}}
`), pod.HTTPSource, "http://host/pod", "n")
	if err != nil {
		t.Fatal(err)
	}
	v := p.Spec.Volumes
	got := []int64{int64(*v[0].Secret.DefaultMode), int64(*v[1].ConfigMap.DefaultMode), *v[2].Projected.Sources[0].ServiceAccountToken.ExpirationSeconds}
	if diff := cmp.Diff([]int64{0o644, 0o644, 3600}, got); diff != "" {
		t.Error(diff)
	}
	if p.Spec.Tolerations != nil {
		t.Errorf("tolerations %v: only pods from files get one", p.Spec.Tolerations)
	}
}

func TestUID(t *testing.T) {
	uid := func(manifest, source, origin, node string) string {
		p, err := ParsePod([]byte(manifest), source, origin, node)
		if err != nil {
			t.Fatal(err)
		}
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

func TestParsePodErrors(t *testing.T) {
	const head = "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: "
	cases := []struct{ name, manifest, want string }{
		{"neither", "a: [", "/m/x: this is neither YAML nor JSON: "},
		{"no kind", "{}", "write a pod, with apiVersion: v1 and kind: Pod"},
		{"unknown kind", "{apiVersion: v9, kind: Pod}", "write a pod, with apiVersion: v1 and kind: Pod"},
		{"other kind", "{apiVersion: v1, kind: Service}", "/m/x: this is a Service: only pods can be run from a manifest"},
		{"ConfigMap", "{apiVersion: v1, kind: ConfigMap}", "/m/x: this is what pods refer to, not a pod: keep it out of the folder of manifests"},
		{"list", "{apiVersion: v1, kind: PodList, items: []}", "/m/x: this holds a list of 0 pods: put each pod into a file of its own"},
		{"wrong type", "{apiVersion: v1, kind: Pod, spec: {containers: 7}}", "containers"},
		{"no name", "{apiVersion: v1, kind: Pod}", "/m/x: invalid pod: the pod has no name: give it a metadata.name"},
		{"bad name", "{apiVersion: v1, kind: Pod, metadata: {name: Web}, spec: {containers: [{name: c, image: i}]}}", `metadata.name: change "Web-n": `},
		{"label", "{apiVersion: v1, kind: Pod, metadata: {name: web, labels: {a: 'b c'}}}", "metadata.labels: Invalid value"},
		{"no containers", head + "{}}", "/m/x: invalid pod: spec.containers: give the pod at least one"},
		{"no image", head + "{containers: [{name: c}]}}", "/m/x: invalid pod: spec.containers[0].image: name an image, without spaces around it"},
		{"no container name", head + "{containers: [{image: i}]}}", "/m/x: invalid pod: spec.containers[0].name: give it a name"},
		{"twins", head + "{initContainers: [{name: c, image: i}], containers: [{name: c, image: i}]}}", `spec.containers[0].name: choose another name: "c" is taken`},
		{"restart policy", head + "{restartPolicy: Sometimes}}", `spec.restartPolicy: write one of [Always OnFailure Never], not "Sometimes"`},
		{"deadline", head + "{activeDeadlineSeconds: 0}}", "spec.activeDeadlineSeconds: make it 1 or more"},
		{"grace", head + "{terminationGracePeriodSeconds: -1}}", "spec.terminationGracePeriodSeconds: make it 0 or more"},
		{"ephemeral", head + "{ephemeralContainers: [{name: e, image: i}]}}", "spec.ephemeralContainers: remove them"},
		{"volume sources", head + "{volumes: [{name: v, emptyDir: {}, hostPath: {path: /}}]}}", "spec.volumes[0]: keep one source"},
		{"init probe", head + "{initContainers: [{name: i, image: i, livenessProbe: {exec: {command: [a]}}}]}}", "spec.initContainers[0]: remove its probes and lifecycle"},
		{"mount", head + "{containers: [{name: c, image: i, volumeMounts: [{name: v, mountPath: /v}]}]}}", `volumeMounts[0].name: add a volume "v" to the pod`},
		{"subPath", head + "{containers: [{name: c, image: i, volumeMounts: [{name: v, subPath: ../x}]}]}}", "volumeMounts[0].subPath: stay inside the volume"},
		{"port", head + "{containers: [{name: c, image: i, ports: [{containerPort: 70000}]}]}}", "ports[0].containerPort: change 70000: it must be between 1 and 65535"},
		{"env", head + "{containers: [{name: c, image: i, env: [{name: A, value: x, valueFrom: {}}]}]}}", "env[0]: keep either the value or one valueFrom"},
		{"resources", head + "{containers: [{name: c, image: i, resources: {requests: {cpu: 2}, limits: {cpu: 1}}}]}}", "resources.requests[cpu]: make it 0 or more, and at most the limit"},
		{"probe", head + "{containers: [{name: c, image: i, readinessProbe: {}}]}}", "readinessProbe: keep one thing to do"},
		{"negative probe", head + "{containers: [{name: c, image: i, readinessProbe: {periodSeconds: -1}}]}}", "readinessProbe: make its numbers 0 or more"},
		{"liveness threshold", head + "{containers: [{name: c, image: i, livenessProbe: {successThreshold: 2}}]}}", "livenessProbe.successThreshold: make it 1"},
		{"TCP probe", head + "{containers: [{name: c, image: i, livenessProbe: {tcpSocket: {port: A_B}}}]}}", "livenessProbe.tcpSocket.port: change A_B"},
		{"hook", head + "{containers: [{name: c, image: i, lifecycle: {postStart: {exec: {}}}}]}}", "lifecycle.postStart.exec.command: name a command"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParsePod([]byte("---\n"+c.manifest), pod.FileSource, "/m/x", "n")
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

func TestCheckReferences(t *testing.T) {
	cases := []struct{ spec, strict, allowed string }{
		{"containers: []", "", ""},
		{"serviceAccountName: a", "serviceaccounts", ""},
		{"imagePullSecrets: [{name: a}]", "secrets", ""},
		{"containers: [{envFrom: [{configMapRef: {name: a}}]}]", "configmaps", ""},
		{"initContainers: [{env: [{valueFrom: {secretKeyRef: {name: a}}}]}]", "secrets", ""},
		{"volumes: [{secret: {secretName: a}}]", "secrets (via secret volumes)", ""},
		{"volumes: [{projected: {sources: [{serviceAccountToken: {path: t}}]}}]", "serviceaccounts (via projected volumes)", ""},
		{"volumes: [{projected: {sources: [{clusterTrustBundle: {path: t}}]}}]", "clustertrustbundles", "clustertrustbundles"},
		{"volumes: [{persistentVolumeClaim: {claimName: a}}]", "persistentvolumeclaims", "persistentvolumeclaims"},
		{"resourceClaims: [{name: a}]", "resourceclaims", "resourceclaims"},
	}
	for _, c := range cases {
		p := podOf(t, c.spec)
		for allowed, want := range map[bool]string{false: c.strict, true: c.allowed} {
			got := ""
			if err := checkReferences(p, allowed); err != nil {
				got = err.Error()
			}
			if want != "" {
				want = "static pods may not reference " + want + ": bind the pod through the API server, or remove the reference"
			}
			if got != want {
				t.Errorf("%s, allowed %v: %q, want %q", c.spec, allowed, got, want)
			}
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
			// A mux that is told of the same pod again has nothing to do.
			has, _ := merge("file", nil, []*v1.Pod{p}, "t")
			if _, c := merge("file", has, []*v1.Pod{p}, "t"); len(c.updates("file", false)) > 0 {
				t.Errorf("changes without a change: %v", show(c.updates("file", false)))
			}
		}
	})
}

func podOf(t *testing.T, spec string) *v1.Pod {
	t.Helper()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	if err := yaml.Unmarshal([]byte("{"+spec+"}"), &p.Spec); err != nil {
		t.Fatal(err)
	}
	return p
}
