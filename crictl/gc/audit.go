package gc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Events of an audit file.
const (
	auditStart   = "start"   // a run begins; written and synced before anything is removed
	auditRemoved = "removed" // the runtime has confirmed the removal
	auditEnd     = "end"
)

// auditHead is how each record begins, and so each audit file.
const auditHead = `{"at":`

// An AuditRecord is one line of an audit file.
type AuditRecord struct {
	At    time.Time `json:"at"`
	Event string    `json:"event"`
	PID   int       `json:"pid,omitempty"`     // of a start
	Made  *Identity `json:"runtime,omitempty"` // of a start
	Count int       `json:"count,omitempty"`   // of a start: candidates; of an end: removed

	*Candidate          // of a removal
	Logs       []string `json:"logs,omitempty"` // the files of a container's log that were removed with it
}

// An Audit is a file of what was removed, one JSON object per line. Bytes that are in the file are never changed: runs
// only append.
type Audit struct {
	mu   sync.Mutex
	file auditFile
}

// An auditFile is the part of *os.File that an Audit writes with.
type auditFile interface {
	io.WriteCloser
	Sync() error
}

// OpenAudit opens or creates the audit file at path, for a run that removes at most count candidates. It syncs a first
// record, so that a full or read-only disk is an error before anything is removed. A file that has content and does not
// begin with an audit record is refused and left as it is.
func OpenAudit(path string, made Identity, count int, now time.Time) (*Audit, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the audit file: %w", err)
	}
	a := &Audit{file: file}
	head := make([]byte, len(auditHead))
	n, err := file.ReadAt(head, 0)
	switch {
	case n == 0 && errors.Is(err, io.EOF), string(head) == auditHead:
		err = a.write(AuditRecord{At: now, Event: auditStart, PID: os.Getpid(), Made: &made, Count: count})
	default:
		err = errors.New("not an audit file of kdiag; left unchanged")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("preparing the audit file %s: %w", path, err), file.Close())
	}
	return a, nil
}

// removed records that a candidate was removed, and returns once the record is on the disk.
func (a *Audit) removed(c *Candidate, logs []string) error {
	return a.write(AuditRecord{At: time.Now(), Event: auditRemoved, Candidate: c, Logs: logs})
}

// write appends a record and syncs it.
func (a *Audit) write(record AuditRecord) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := json.NewEncoder(a.file).Encode(record)
	if err == nil {
		err = a.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("writing the audit file: %w", err)
	}
	return nil
}

// Close records the end of the run. removed is how many candidates were removed.
func (a *Audit) Close(removed int, now time.Time) error {
	return errors.Join(a.write(AuditRecord{At: now, Event: auditEnd, Count: removed}), a.file.Close())
}
