package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/connection"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/crictl/gc"
)

// Bounds of the evidence on which pods exist.
const (
	evidenceTimeout = 5 * time.Second
	maxPods         = 64 << 20         // bytes of the kubelet's /pods; a pod takes some ten thousand
	freshPods       = 10 * time.Minute // how old a file of --pods may be
	defaultRootDir  = "/var/lib/kubelet"
)

// Sources override the places where the running kubelet shows which pods exist.
type Sources struct {
	KubeletRoot string // --kubelet-root
	Manifests   string // --manifests
	Pods        string // --pods: a file with the answer of the kubelet's /pods
}

// SourceFlags are the names of these flags.
func SourceFlags() []string { return []string{"kubelet-root", "manifests", "pods"} }

// AddSources adds these flags.
func (s *Sources) AddSources(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&s.KubeletRoot, "kubelet-root", "",
		"the kubelet's root folder (default: the running kubelet's, usually /var/lib/kubelet)")
	fs.StringVar(&s.Manifests, "manifests", "",
		"the folder of static pod manifests (default: the running kubelet's)")
	fs.StringVar(&s.Pods, "pods", "",
		"a file with the kubelet's /pods as JSON (default: its read-only port, if it has one)")
}

// CheckSources returns an error for the first invalid flag. It makes the folders absolute.
func (s *Sources) CheckSources(cmd *cobra.Command) error {
	if err := cli.RejectEmpty(cmd, SourceFlags()...); err != nil {
		return err
	}
	for _, path := range []*string{&s.KubeletRoot, &s.Manifests} {
		if abs, err := filepath.Abs(*path); err == nil && *path != "" {
			*path = abs
		}
	}
	return cli.Regular("pods", &s.Pods, "for example: kubectl get --raw /api/v1/nodes/NODE/proxy/pods > pods.json")
}

// readEvidence reads which pods of the node exist, from each source within its own deadline. A pod counts as alive if a
// source cannot be read. A source that names no pod of a sandbox here proves nothing: it is empty, another node's, or a
// kubelet's that has just started.
func readEvidence(
	ctx context.Context, env cli.Env, c *connection.Connection, src Sources, sandboxes []crictl.PodSandbox,
) gc.KubeletView {
	here := make(map[string]bool, len(sandboxes))
	for i := range sandboxes {
		here[sandboxes[i].Pod.UID] = true
	}
	var e gc.KubeletView
	var all sync.WaitGroup
	source := func(without *string, ask func(context.Context) error) {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, evidenceTimeout)
			defer cancel()
			if err := ask(ctx); err != nil {
				*without = crictl.Shorten(err.Error(), maxReason)
			}
		})
	}
	source(&e.PodsWithout, func(ctx context.Context) (err error) {
		e.Pods, err = readPods(ctx, env, c, src)
		if err == nil && !slices.ContainsFunc(e.Pods, func(p gc.KubeletPod) bool { return here[p.UID] }) {
			err = errors.New("none has a sandbox here: another node's pods, or none was started yet")
		}
		return err
	})
	source(&e.DirsWithout, func(ctx context.Context) error {
		dir, err := folder(c, "--kubelet-root", src.KubeletRoot, collection(c).RootDir, defaultRootDir)
		if err == nil {
			e.Dirs, err = gc.ReadPodDirs(ctx, env.Root, dir)
		}
		if err == nil && !slices.ContainsFunc(e.Dirs, func(uid string) bool { return here[uid] }) {
			err = errors.New("none belongs to a pod with a sandbox here: another kubelet's or runtime's, " +
				"or none was started yet")
		}
		return err
	})
	source(&e.ManifestsWithout, func(ctx context.Context) error {
		if src.Manifests == "" && collection(c).StaticPodURL != "" {
			return errors.New("the kubelet also reads some from a URL; kdiag does not")
		}
		dir, err := folder(c, "--manifests", src.Manifests, collection(c).StaticPodPath, "")
		if err == nil && dir != "" { // a kubelet without a folder runs none
			e.Manifests, err = gc.ReadManifests(ctx, env.Root, dir)
		}
		return err
	})
	all.Wait()
	return e
}

// maxReason bounds a quoted error, in runes: paths may be long.
const maxReason = 400

// collection returns the kubelet's settings for collecting garbage; the zero value where none runs.
func collection(c *connection.Connection) crictl.Collection {
	if c.Kubelet == nil {
		return crictl.Collection{}
	}
	return c.Kubelet.Collection
}

// folder returns the folder that a flag names, else the one that the kubelet was given, else its default. The last is
// known only of a kubelet that is a process by itself: one that is embedded, as in k3s, is given folders that no
// argument shows.
func folder(c *connection.Connection, flag, named, given, usual string) (string, error) {
	switch {
	case named != "":
		return named, nil
	case c.Simulated():
		return "", errSimulated
	case c.Kubelet == nil:
		return "", errors.New("no kubelet runs here; name the folder with " + flag)
	case given != "":
		return given, nil
	case c.Kubelet.Unreadable != "" || c.Kubelet.Name != "kubelet":
		return "", errors.New("folder unknown; name it with " + flag)
	}
	return usual, nil
}

var errSimulated = errors.New("the runtime is simulated")

// readPods asks the kubelet's read-only port for its pods, or reads the answer from a file.
func readPods(ctx context.Context, env cli.Env, c *connection.Connection, src Sources) ([]gc.KubeletPod, error) {
	switch {
	case src.Pods != "":
		return deadline.Run(ctx, "reading "+src.Pods, func(context.Context) ([]gc.KubeletPod, error) {
			return podsFromFile(src.Pods, env.Now())
		})
	case c.Simulated():
		return nil, errSimulated
	case c.Kubelet == nil:
		return nil, errors.New("no kubelet runs here; --pods takes the list from a file")
	case collection(c).ReadOnlyPort <= 0:
		return nil, errors.New("the kubelet has no read-only port; --pods takes the list from a file")
	}
	data, err := kubelet.Pods(ctx, collection(c).ReadOnlyPort)
	if err != nil {
		return nil, err
	}
	return parsePods(data)
}

func podsFromFile(name string, now time.Time) ([]gc.KubeletPod, error) {
	data, err := cli.ReadFile(name, maxPods)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(name); err == nil && now.Sub(info.ModTime()) > freshPods {
		return nil, fmt.Errorf("%s is older than %v; ask the kubelet again", name, freshPods)
	}
	pods, err := parsePods(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return pods, nil
}

// parsePods reads the answer of the kubelet's /pods, of which only names are read:
//
//	{"kind":"PodList","items":[{"metadata":{"uid":"..","namespace":"..","name":".."},
//	 "spec":{"containers":[{"name":"app"}]}}]}
//
// A static pod from the API server's view has the UID of its mirror; the kubelet's own is the annotation
// kubernetes.io/config.hash or config.mirror, so those count as UIDs too.
func parsePods(data []byte) ([]gc.KubeletPod, error) {
	var list struct {
		Kind  string
		Items []struct {
			Metadata struct {
				UID, Namespace, Name string
				Annotations          map[string]string
			}
			Spec struct{ Containers []struct{ Name string } }
		}
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("not a list of pods: %w", err)
	}
	if list.Kind != "PodList" {
		return nil, fmt.Errorf("kind %.40q, not PodList", list.Kind)
	}
	var pods []gc.KubeletPod
	for i := range list.Items {
		m := &list.Items[i].Metadata
		if m.UID == "" || m.Name == "" {
			return nil, fmt.Errorf("item %d has no UID or no name", i)
		}
		p := gc.KubeletPod{UID: m.UID, Namespace: m.Namespace, Name: m.Name}
		for _, c := range list.Items[i].Spec.Containers {
			p.Main = append(p.Main, c.Name)
		}
		pods = append(pods, p)
		for _, key := range []string{"kubernetes.io/config.hash", "kubernetes.io/config.mirror"} {
			if uid := m.Annotations[key]; uid != "" && uid != m.UID {
				p.UID = uid
				pods = append(pods, p)
			}
		}
	}
	return pods, nil
}
