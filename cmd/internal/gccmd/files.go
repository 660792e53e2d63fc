package gccmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/crictl/gc"
)

// readPlan reads the file of --apply and checks that it belongs here.
func readPlan(ctx context.Context, name string, here gc.Identity) (*gc.PlanFile, error) {
	type answer struct {
		plan *gc.PlanFile
		err  error
	}
	a, err := cli.Await(ctx, func(context.Context) answer {
		info, err := os.Stat(name)
		if err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%s is no regular file", name)
		}
		if err != nil {
			return answer{err: err}
		}
		f, err := os.Open(name)
		if err != nil {
			return answer{err: err}
		}
		defer f.Close()
		plan, err := gc.ReadPlan(f, here)
		return answer{plan, err}
	})
	if err = errors.Join(err, a.err); err != nil {
		return nil, &cli.UsageError{Problem: "--apply " + name + ": " + err.Error(), Hint: "kdiag gc-exited --plan FILE writes a plan; nothing was removed"}
	}
	return a.plan, nil
}

// save writes the plan to the file of --plan, and prints it.
func (s *session) save(ctx context.Context, dest *cli.Destination) error {
	var buf bytes.Buffer
	if err := gc.WritePlan(&buf, s.doc.Plan, s.look.Runtime, s.env.Now()); err != nil {
		return err
	}
	_, err := disk(ctx, "--plan", func() (struct{}, error) { return struct{}{}, dest.Write(buf.Bytes()) })
	if err != nil {
		return err
	}
	s.say("the plan is in %s; %s removes what of it may still go", s.opts.plan, s.opts.next.remove(s.opts.plan, s.opts.liveness != ""))
	return s.print(cli.ExitHealthy)
}

// lock keeps other runs away from the runtime. The file is beside the socket: whoever can reach the one can reach the
// other, also from within a container, where the folder may have another name; so that of the file does not depend on
// it. Where nothing can be written there it is in /run/lock.
func (s *session) lock() (*gc.Lock, error) {
	socket := strings.TrimPrefix(s.t.Endpoint.URL, "unix://")
	if real, err := filepath.EvalSymlinks(socket); err == nil {
		socket = real
	}
	path := gc.LockPath(filepath.Dir(socket), filepath.Base(socket))
	lock, err := gc.TakeLock(path)
	if err == nil {
		return lock, nil
	}
	if _, locked := errors.AsType[*gc.LockedError](err); !locked {
		if lock, second := gc.TakeLock(gc.LockPath(filepath.Join(s.env.Root, "run/lock"), socket)); second == nil {
			return lock, nil
		} else if _, locked := errors.AsType[*gc.LockedError](second); locked {
			err = second
		}
	}
	return nil, lockedHint(err)
}
