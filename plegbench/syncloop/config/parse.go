package config

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// errObject is for a manifest with an object that pods refer to.
var errObject = errors.New("this is a ConfigMap or Secret, not a pod")

// ParsePod reads one pod in YAML or JSON and completes it as the kubelet completes a static pod: the API's defaults,
// a UID from its content and origin, the node's name behind its own, namespace default, bound to the node, phase
// Pending. Of several YAML documents only the first counts, and unknown fields are ignored; the kubelet does both.
// source is "file" or "http" and origin the path or URL, with which every error begins.
func ParsePod(data []byte, source, origin, nodeName string) (*v1.Pod, error) {
	pods, err := parse(data, source, origin, nodeName)
	switch {
	case err != nil:
		return nil, err
	case len(pods) != 1:
		return nil, fmt.Errorf("%s: this holds a list of %d pods: put each pod into a file of its own", origin, len(pods))
	}
	return pods[0], nil
}

// parse is ParsePod for a pod or a list of them, which is good only if every pod is.
func parse(data []byte, source, origin, nodeName string) ([]*v1.Pod, error) {
	data, err := yaml.ToJSON(data)
	if err != nil {
		return nil, fmt.Errorf("%s: this is neither YAML nor JSON: %s", origin, oneLine(err))
	}
	obj, kind, err := manifests().Decode(data, nil, nil)
	switch {
	case kind != nil && kind.Kind != "Pod" && runtime.IsNotRegisteredError(err):
		return nil, fmt.Errorf("%s: %s", origin, notPods(kind))
	case err != nil:
		return nil, fmt.Errorf("%s: %s: write a pod, with apiVersion: v1 and kind: Pod", origin, oneLine(err))
	}
	var pods []*v1.Pod
	switch o := obj.(type) {
	case *v1.Pod:
		pods = []*v1.Pod{o}
	case *v1.PodList:
		for i := range o.Items {
			pods = append(pods, &o.Items[i])
		}
	case *v1.ConfigMap, *v1.Secret:
		return nil, fmt.Errorf("%s: %w", origin, errObject)
	default:
		return nil, fmt.Errorf("%s: %s", origin, notPods(kind))
	}
	for _, p := range pods {
		if err := complete(p, source, origin, nodeName); err != nil {
			return nil, fmt.Errorf("%s: %w", origin, err)
		}
	}
	return pods, nil
}

// manifests decodes objects of the API's core group, JSON only.
var manifests = sync.OnceValue(func() runtime.Decoder {
	scheme := runtime.NewScheme()
	utilruntime.Must(v1.AddToScheme(scheme))
	return serializer.NewCodecFactory(scheme).UniversalDeserializer()
})

func notPods(kind *schema.GroupVersionKind) string {
	return fmt.Sprintf("this is a %s: only pods can be run from a manifest", strings.Join(strings.Fields(kind.Kind), " "))
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// complete makes a static pod from a manifest (applyDefaults in pkg/kubelet/config/common.go upstream).
func complete(p *v1.Pod, source, origin, nodeName string) error {
	if p.Name == "" {
		return errors.New("invalid pod: the pod has no name: give it a metadata.name")
	}
	p.TypeMeta = metav1.TypeMeta{}
	setDefaults(p)
	if p.UID == "" {
		uid, err := uidOf(p, source, origin, nodeName)
		if err != nil {
			return err
		}
		p.UID = uid
	}
	p.Name += "-" + strings.ToLower(nodeName)
	if p.Namespace == "" {
		p.Namespace = metav1.NamespaceDefault
	}
	p.Spec.NodeName = nodeName
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[pod.ConfigHashAnnotation] = string(p.UID)
	if source == pod.FileSource {
		// No taint of the node ends it.
		always := v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}
		same := func(t v1.Toleration) bool { return t.MatchToleration(&always) }
		if i := slices.IndexFunc(p.Spec.Tolerations, same); i >= 0 {
			p.Spec.Tolerations[i] = always
		} else {
			p.Spec.Tolerations = append(p.Spec.Tolerations, always)
		}
	}
	p.Status.Phase = v1.PodPending
	return validate(p)
}

// uidOf hashes what the pod is and where it comes from, so that any edit makes another pod. The kubelet hashes its own
// representation of the pod in memory instead of JSON, so its UIDs of the same manifests are other ones.
func uidOf(p *v1.Pod, source, origin, nodeName string) (types.UID, error) {
	content, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("hashing the pod: %w", err)
	}
	from := "url:" + origin
	if source == pod.FileSource {
		from = "host:" + nodeName + "file:" + origin
	}
	h := fnv.New128a()
	_, _ = h.Write(append(content, from...)) // a hash never errs
	return types.UID(hex.EncodeToString(h.Sum(nil))), nil
}
