package journal

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// childDeadline bounds a journalctl that reads a file of a format unknown to us.
const childDeadline = 30 * time.Second

// journalctl reads a journal file by way of systemd's own program, in its export format. It is only asked where the
// file has a format that package journalfile does not know.
func (r *reading) journalctl(ctx context.Context, j *job, c *collector) error {
	limit := r.opts.Deadline
	if limit <= 0 {
		limit = childDeadline
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	args := []string{"--no-pager", "-q", "-a", "-o", "export", "--file", j.path}
	if !r.opts.Since.IsZero() {
		args = append(args, fmt.Sprintf("--since=@%d", r.opts.Since.Unix()))
	}
	if !r.opts.Until.IsZero() {
		args = append(args, fmt.Sprintf("--until=@%d", r.opts.Until.Add(time.Hour).Unix()))
	}
	cmd := exec.CommandContext(ctx, "journalctl", args...)
	cmd.Env = append(cmd.Environ(), "LC_ALL=C", "TZ=UTC")
	cmd.WaitDelay = time.Second
	var said bytes.Buffer
	cmd.Stderr = &capped{buf: &said, left: 4096}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("running journalctl: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("a journal of a format that kdiag does not know, and journalctl cannot be run: %w", err)
	}
	_, scanErr := r.scan(ctx, j.name, out, c)
	err = cmd.Wait()
	c.Format = "journalctl"
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("journalctl: %w", ctx.Err())
	case err != nil:
		return fmt.Errorf("a journal of a format that kdiag does not know; journalctl: %s: %w",
			strings.TrimSpace(said.String()), err)
	}
	return scanErr
}

// capped keeps the beginning of what is written to it.
type capped struct {
	buf  *bytes.Buffer
	left int
}

func (c *capped) Write(b []byte) (int, error) {
	n := min(len(b), c.left)
	c.buf.Write(b[:n])
	c.left -= n
	return len(b), nil
}
