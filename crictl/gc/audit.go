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
	auditStart   = "start"   // written and synced before the first removal of a run
	auditRemoved = "removed" // the runtime has confirmed the removal
)

// auditHead is how each record begins, and so each audit file.
const auditHead = `{"at":`

// An AuditRecord is one line of an audit file.
type AuditRecord struct {
	At    time.Time `json:"at"`
	Event string    `json:"event"`

	*Candidate          // of a removal
	Logs       []string `json:"logs,omitempty"` // the files of the container's log that were removed
}

// An Audit is a file with one JSON object per removal. Runs only append to it.
type Audit struct {
	mu   sync.Mutex
	file auditFile
}

// An auditFile is the part of *os.File that an Audit writes with.
type auditFile interface {
	io.WriteCloser
	Sync() error
}

// OpenAudit opens or creates the audit file at path. It syncs a first record, so that a full or read-only disk is an
// error before anything is removed. A file with other content is an error and is not changed.
func OpenAudit(path string) (*Audit, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the audit file: %w", err)
	}
	a := &Audit{file: file}
	head := make([]byte, len(auditHead))
	n, err := file.ReadAt(head, 0)
	switch {
	case n == 0 && errors.Is(err, io.EOF), string(head) == auditHead:
		err = a.write(AuditRecord{Event: auditStart})
	default:
		err = errors.New("not an audit file of kdiag; left unchanged")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("preparing the audit file %s: %w", path, err), file.Close())
	}
	return a, nil
}

// removed records a removal. When it returns, the record is on the disk.
func (a *Audit) removed(c *Candidate, logs []string) error {
	return a.write(AuditRecord{Event: auditRemoved, Candidate: c, Logs: logs})
}

// write appends a record and syncs it.
func (a *Audit) write(record AuditRecord) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	record.At = time.Now()
	err := json.NewEncoder(a.file).Encode(record)
	if err == nil {
		err = a.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("writing the audit file: %w", err)
	}
	return nil
}

// Close closes the file.
func (a *Audit) Close() error { return a.file.Close() }
