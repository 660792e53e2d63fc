//go:build e2e

package e2etest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/crictl"
)

// An Act is what a program that repairs nodes does for an action.
type Act struct {
	Action checks.Action
	Do     func(ctx context.Context, c checks.Cause) error
}

// A proof says which actions ended a fault.
type proof struct {
	Fault  string
	Cause  string
	Action checks.Action
	Tried  []checks.Action // the lesser ones first, up to the cause's own
	Healed checks.Action   // the last that was tried, if it ended the fault
}

const (
	actPatience  = 2 * time.Minute // systemd kills a unit that does not end after 90 s
	healPatience = 30 * time.Second
)

// prove applies the actions of a place to a fault, the least first, up to the action of its cause, and adds what they
// did to the folder that KDIAG_ACTIONS names. Where a person has to act, all of them are lesser ones.
func (p Place) prove(t *testing.T, c checks.Cause) (proved bool) {
	dir := os.Getenv("KDIAG_ACTIONS")
	if dir == "" || slices.Contains([]checks.Action{checks.ActionNone, checks.ActionWait}, c.Action) {
		return false
	}
	result := proof{Fault: strings.TrimPrefix(t.Name(), "TestEndToEnd"), Cause: c.Code, Action: c.Action}
	for _, a := range p.Acts {
		if rank := slices.Index(checks.Actions(), c.Action); slices.Index(checks.Actions(), a.Action) > rank {
			break
		}
		result.Tried = append(result.Tried, a.Action)
		ctx, cancel := context.WithTimeout(t.Context(), actPatience)
		err := a.Do(ctx, c)
		cancel()
		t.Logf("%s: %v", a.Action, err)
		if err == nil && p.healed(t, c) {
			result.Healed = a.Action
			break
		}
	}
	data, err := json.Marshal(result)
	Must(t, err)
	name := strings.ReplaceAll(result.Fault, "/", "-") + ".json"
	Must(t, os.WriteFile(filepath.Join(dir, name), append(data, '\n'), 0o644))
	return true
}

// healed waits for a while until kdiag does not name the cause any more, and nothing critical.
func (p Place) healed(t *testing.T, c checks.Cause) bool {
	for end := time.Now().Add(healPatience); ; {
		r := p.Ask(t, p.question("node")...).Report(t)
		if r.Status != checks.Unknown && !slices.ContainsFunc(p.own(r, c.Code), func(now checks.Cause) bool {
			return now.Severity == checks.Critical || now.Code == c.Code // a restarted process is another subject
		}) {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// acts are what a controller can do to the containerd and its pods.
func (r *Rig) acts() []Act {
	return []Act{
		{checks.ActionDeletePod, r.deletePod},
		{checks.ActionRestartRuntime, r.restart},
	}
}

// restart restarts the daemon in its control groups, as systemd does, which sends SIGKILL to one that does not end.
func (r *Rig) restart(ctx context.Context, _ checks.Cause) error {
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", r.PID()))
	if err := errors.Join(err, r.Kill(ctx), r.Restart(ctx)); err != nil {
		return err
	}
	for line := range strings.Lines(string(groups)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if f[1] == "" {
			continue // version 2, which has no controller here
		}
		dir := filepath.Join("/sys/fs/cgroup", strings.TrimPrefix(f[1], "name="), f[2])
		err = errors.Join(err, os.WriteFile(dir+"/cgroup.procs", []byte(strconv.Itoa(r.PID())), 0))
	}
	return err
}

// deletePod removes the sandbox of a cause's pod with its containers, as a kubelet does when the pod is deleted.
func (r *Rig) deletePod(ctx context.Context, c checks.Cause) error {
	if c.Subject == nil || c.Subject.Pod == "" {
		return errors.New("no pod is named")
	}
	client, err := crictl.Dial(r.Endpoint(), crictl.Options{RPCTimeout: actPatience})
	if err != nil {
		return err
	}
	defer client.Close()
	for _, s := range client.ListPodSandbox(ctx, crictl.Filter{}, crictl.ModeUnary).Sandboxes {
		if s.Pod.Name == path.Base(c.Subject.Pod) {
			if call := client.RemovePodSandbox(ctx, s.ID); !call.OK() {
				return fmt.Errorf("removing the sandbox of %s: %s", c.Subject.Pod, call.Code)
			}
			return nil
		}
	}
	return fmt.Errorf("no sandbox of %s", c.Subject.Pod)
}
