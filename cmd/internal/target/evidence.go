package target

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/cmd/internal/cli"
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

// Sources say where to find out which pods exist, instead of where the running kubelet says.
type Sources struct {
	KubeletRoot string // --kubelet-root
	Manifests   string // --manifests
	Pods        string // --pods: a file with the answer of the kubelet's /pods
}

// AddSources adds the flags that say where to find out which pods exist.
func (s *Sources) AddSources(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&s.KubeletRoot, "kubelet-root", "", "the kubelet's folder, in which it keeps its pods' (default: the running kubelet's, usually /var/lib/kubelet)")
	fs.StringVar(&s.Manifests, "manifests", "", "the folder of the static pods' manifests (default: the running kubelet's)")
	fs.StringVar(&s.Pods, "pods", "", "a file with the kubelet's answer to /pods, as JSON (default: asked for, where the kubelet has a read-only port)")
}

// CheckSources reports the first of these flags that makes no sense.
func (s *Sources) CheckSources(cmd *cobra.Command) error {
	for _, flag := range []struct{ name, value string }{{"kubelet-root", s.KubeletRoot}, {"manifests", s.Manifests}, {"pods", s.Pods}} {
		if flag.value == "" && cmd.Flags().Changed(flag.name) {
			return &cli.UsageError{Problem: "--" + flag.name + " is empty", Hint: "leave it out, or name a path"}
		}
	}
	for _, path := range []*string{&s.KubeletRoot, &s.Manifests} {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path) // relative to the working folder, as everywhere
		if err != nil {
			return err
		}
		*path = abs
	}
	if s.Pods != "" {
		problem := ""
		switch info, err := os.Stat(s.Pods); {
		case errors.Is(err, fs.ErrNotExist):
			problem = "there is no such file"
		case err != nil:
			problem = err.Error()
		case !info.Mode().IsRegular():
			problem = "it is no regular file"
		}
		if problem != "" {
			return &cli.UsageError{
				Problem: "--pods " + s.Pods + ": " + problem,
				Hint:    "for example: kubectl get --raw /api/v1/nodes/NODE/proxy/pods > pods.json",
			}
		}
	}
	return nil
}

// evidence gathers what is known about the pods of the node. What cannot be had says why; a pod then counts as alive.
// Each source has its own time: one that hangs says nothing about the others.
func (t *Target) evidence(ctx context.Context, env cli.Env, src Sources, sandboxes []crictl.PodSandbox) gc.Evidence {
	here := make(map[string]bool, len(sandboxes))
	for i := range sandboxes {
		here[sandboxes[i].Pod.UID] = true
	}
	var e gc.Evidence
	var all sync.WaitGroup
	source := func(without *string, ask func(context.Context) error) {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, evidenceTimeout)
			defer cancel()
			*without = shortReason(ask(ctx))
		})
	}
	source(&e.PodsWithout, func(ctx context.Context) (err error) {
		e.Pods, err = t.pods(ctx, env, src)
		if err == nil && !knows(here, e.Pods, func(p gc.KubeletPod) string { return p.UID }) {
			err = errors.New("none of them has a sandbox here: they are those of another node, or none of them has been started yet")
		}
		return err
	})
	source(&e.DirsWithout, func(ctx context.Context) (err error) {
		e.Dirs, err = t.podDirs(ctx, env, src)
		if err == nil && !knows(here, e.Dirs, func(uid string) string { return uid }) {
			err = errors.New("none of them is of a pod that has a sandbox here: they are those of another kubelet or runtime, or none of them has been started yet")
		}
		return err
	})
	source(&e.ManifestsWithout, func(ctx context.Context) (err error) {
		e.Manifests, err = t.manifests(ctx, env, src)
		return err
	})
	all.Wait()
	return e
}

// maxReason bounds what is repeated of why something could not be had, in runes: paths may be long.
const maxReason = 400

// shortReason is why something could not be had; empty for nil.
func shortReason(err error) string {
	if err == nil {
		return ""
	}
	return crictl.Shorten(err.Error(), maxReason)
}

// knows reports whether one of the pods that a source names is here. A source that names none of them is another node's,
// empty, or that of a kubelet which has only just started: it cannot be told which, and proves nothing.
func knows[T any](here map[string]bool, all []T, uid func(T) string) bool {
	for _, p := range all {
		if here[uid(p)] {
			return true
		}
	}
	return false
}

func (t *Target) podDirs(ctx context.Context, env cli.Env, src Sources) ([]string, error) {
	dir := src.KubeletRoot
	if dir == "" {
		switch {
		case t.Simulated():
			return nil, errors.New("the runtime is simulated")
		case t.Kubelet == nil:
			return nil, errors.New("no kubelet runs here to say where they are; --kubelet-root names its folder")
		case t.Kubelet.Collection.RootDir != "":
			dir = t.Kubelet.Collection.RootDir
		case t.Kubelet.Unreadable != "" || !t.plainKubelet():
			return nil, errors.New("where they are is not known; --kubelet-root names the kubelet's folder")
		default:
			dir = defaultRootDir
		}
	}
	return gc.ReadPodDirs(ctx, env.Root, dir)
}

// plainKubelet reports whether the kubelet is a process of its own, whose arguments say everything. One that is embedded,
// as in k3s, is given folders that no argument shows.
func (t *Target) plainKubelet() bool { return t.Kubelet != nil && t.Kubelet.Name == "kubelet" }

func (t *Target) manifests(ctx context.Context, env cli.Env, src Sources) ([]string, error) {
	dir := src.Manifests
	if dir == "" {
		switch k := t.Kubelet; {
		case t.Simulated():
			return nil, errors.New("the runtime is simulated")
		case k == nil:
			return nil, errors.New("no kubelet runs here to say where they are; --manifests names their folder")
		case k.Collection.StaticPodURL != "":
			return nil, errors.New("the kubelet also has some from a URL, which are not read")
		case k.Collection.StaticPodPath != "":
			dir = k.Collection.StaticPodPath
		case k.Unreadable != "" || !t.plainKubelet():
			return nil, errors.New("where they are is not known; --manifests names their folder")
		default:
			return nil, nil // this kubelet runs none
		}
	}
	return gc.ReadManifests(ctx, env.Root, dir)
}

// pods asks the kubelet's read-only port for its pods, or reads the answer from a file.
func (t *Target) pods(ctx context.Context, env cli.Env, src Sources) ([]gc.KubeletPod, error) {
	switch {
	case src.Pods != "":
		return deadline.Run(ctx, func(context.Context) ([]gc.KubeletPod, error) { return podsFromFile(src.Pods, env.Now()) })
	case t.Simulated():
		return nil, errors.New("the runtime is simulated")
	case t.Kubelet == nil:
		return nil, errors.New("no kubelet runs here to ask for them; --pods takes its answer from a file")
	case t.Kubelet.Collection.ReadOnlyPort <= 0:
		return nil, errors.New("the kubelet has no read-only port to ask; --pods takes its answer from a file")
	}
	return readOnlyPods(ctx, "127.0.0.1:"+strconv.Itoa(t.Kubelet.Collection.ReadOnlyPort))
}

func readOnlyPods(ctx context.Context, addr string) ([]gc.KubeletPod, error) {
	url := "http://" + addr + "/pods"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // no proxy: it is this node's own
	resp, err := client.Do(req)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("the kubelet does not answer at %s", addr)
	}
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	return parsePods(resp.Body)
}

func podsFromFile(name string, now time.Time) ([]gc.KubeletPod, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file", name)
	case now.Sub(info.ModTime()) > freshPods:
		return nil, fmt.Errorf("%s is older than %v; ask the kubelet again", name, freshPods)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	pods, err := parsePods(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return pods, nil
}

// parsePods reads the answer of the kubelet's /pods, of which only names are looked at:
//
//	{"kind":"PodList","items":[{"metadata":{"uid":"..","namespace":"..","name":".."},
//	 "spec":{"containers":[{"name":"app"}]}}]}
//
// A static pod from the API server's view has the UID of its mirror; the kubelet's own is the annotation
// kubernetes.io/config.hash or config.mirror, so those count as UIDs too.
func parsePods(r io.Reader) ([]gc.KubeletPod, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxPods+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxPods {
		return nil, fmt.Errorf("it is larger than %d bytes", maxPods)
	}
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
		return nil, fmt.Errorf("it is no list of pods: %w", err)
	}
	if list.Kind != "PodList" {
		return nil, fmt.Errorf("it is a %.40q, not a PodList", list.Kind)
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
