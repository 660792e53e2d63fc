//go:build e2e

package nodebox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/crictl"
)

// How long the steps of a private containerd's life may take. Two busy cores take a tenth of it; a disk that others
// write to, more.
const (
	startPatience = 3 * time.Minute
	stopPatience  = 2 * time.Minute
)

// A Containerd is a private containerd with two images, ImagePause and ImageBusybox. Its methods are for one goroutine.
type Containerd struct {
	layout
	cmd  *exec.Cmd
	done <-chan struct{} // closed when the daemon has ended
}

// Start starts a private containerd and returns when its CRI plugin answers and its images are loaded. It ends with the
// test: the daemon, its shims and containers, its mounts, cgroups and files go, whatever state the daemon is in.
func Start(tb testing.TB, opts Options) *Containerd {
	tb.Helper()
	dir, err := newFolder(opts.Parent)
	must(tb, err)
	c := &Containerd{layout: layout{dir}}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*stopPatience)
		defer cancel()
		// A graceful end would only take longer here.
		must(tb, errors.Join(c.end(ctx, unix.SIGKILL), clean(ctx, dir)))
	})
	c.write(tb, opts)
	if opts.RootSize > 0 {
		data := fmt.Sprintf("size=%d,mode=0711", opts.RootSize)
		must(tb, unix.Mount("tmpfs", c.path("root"), "tmpfs", 0, data))
	}
	must(tb, c.launch(tb.Context()))
	archive := c.path("images.tar")
	createImages(tb, archive)
	_, err = run(tb.Context(), "ctr", "--address", c.Socket(), "--namespace", "k8s.io", "images", "import", archive)
	must(tb, err)
	must(tb, awaitImages(tb.Context(), c.Endpoint()))
	return c
}

// launch starts the daemon and waits until it answers.
func (c *Containerd) launch(ctx context.Context) error {
	cmd := exec.Command("containerd", "--config", c.path("config.toml"))
	done, err := spawn(cmd, c.Log())
	if err != nil {
		return err
	}
	c.cmd, c.done = cmd, done
	if err := c.await(ctx); err != nil {
		return fmt.Errorf("%w; its log ends with:\n%s", err, tail(c.Log()))
	}
	return nil
}

// await waits until Version is answered, or the daemon ends. A containerd without its CRI plugin answers that it does
// not know the service.
func (c *Containerd) await(ctx context.Context) error {
	client, err := crictl.Dial(c.Endpoint(), crictl.Options{})
	if err != nil {
		return err
	}
	defer client.Close()
	var call crictl.Call
	err = poll(ctx, startPatience, "containerd to answer Version", func() (bool, error) {
		_, call = client.Version(ctx)
		return call.OK() || call.Code == crictl.Unimplemented || !c.Running(), errors.New(call.Err)
	})
	switch {
	case err != nil:
		return err
	case !c.Running():
		return errors.New("containerd ended: " + c.cmd.ProcessState.String())
	case !call.OK():
		return errors.New("containerd runs, but its CRI plugin did not load") // it listens after loading
	}
	return nil
}

// awaitImages waits until the CRI plugin lists the imported images, of which it is notified by an event.
func awaitImages(ctx context.Context, endpoint string) error {
	client, err := crictl.Dial(endpoint, crictl.Options{})
	if err != nil {
		return err
	}
	defer client.Close()
	return poll(ctx, startPatience, "CRI to know the images", func() (bool, error) {
		call := client.ListImages(ctx)
		return call.OK() && call.Items >= len(images()), errors.New(call.Err)
	})
}

// PID returns the daemon's process id; after it ended, what it was.
func (c *Containerd) PID() int { return c.cmd.Process.Pid }

// Running reports whether the daemon lives; a frozen one does.
func (c *Containerd) Running() bool {
	if c.cmd == nil {
		return false
	}
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// Pause freezes the daemon with SIGSTOP and waits until it has stopped: its socket takes connections until the listen
// queue is full, and nothing answers.
func (c *Containerd) Pause(ctx context.Context) error {
	return errors.Join(c.cmd.Process.Signal(unix.SIGSTOP), awaitStopped(ctx, c.PID()))
}

// Resume continues a frozen daemon.
func (c *Containerd) Resume() error { return c.cmd.Process.Signal(unix.SIGCONT) }

// Stop ends the daemon with SIGTERM, as its unit's stop does, and removes the socket. Its shims and containers live on.
func (c *Containerd) Stop(ctx context.Context) error {
	if err := c.end(ctx, unix.SIGTERM); err != nil {
		return err
	}
	return os.RemoveAll(c.Socket())
}

// Kill ends the daemon with SIGKILL, as the kernel's out-of-memory killer does. The socket's file stays.
func (c *Containerd) Kill(ctx context.Context) error { return c.end(ctx, unix.SIGKILL) }

// end sends a signal and waits for the end. A daemon that is frozen goes on first: no other signal reaches it.
func (c *Containerd) end(ctx context.Context, sig syscall.Signal) error {
	if !c.Running() {
		return nil
	}
	for _, s := range []syscall.Signal{sig, unix.SIGCONT} {
		if err := c.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("sending %v to containerd: %w", s, err)
		}
	}
	return awaitEnd(ctx, c.done, "containerd")
}

// Restart stops the daemon if it runs and starts it again on the same folder. It finds its pods again.
func (c *Containerd) Restart(ctx context.Context) error {
	if err := c.Stop(ctx); err != nil {
		return err
	}
	return c.launch(ctx)
}
