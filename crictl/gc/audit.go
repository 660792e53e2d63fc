package gc

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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

const (
	auditRecordSize = 1 << 10  // bytes of one record at most, nearly always: the ids, names and times of a container
	maxAuditLine    = 64 << 10 // bytes of the first line that are read to recognise an audit file
)

// An AuditRecord is one line of an audit file.
type AuditRecord struct {
	At    time.Time `json:"at"`
	Event string    `json:"event"`
	PID   int       `json:"pid,omitempty"`     // of a start
	Made  *Identity `json:"runtime,omitempty"` // of a start
	Count int       `json:"count,omitempty"`   // of a start: candidates; of an end: removed

	*Candidate // of a removal
}

// An Audit is a file of what was removed, one JSON object per line. Bytes that are in the file are never changed: runs
// only append.
type Audit struct {
	mu   sync.Mutex
	file *os.File
}

// OpenAudit opens or creates the audit file at path, for a run that removes at most count candidates. It reserves the
// space and syncs a first record, so that a full or read-only disk is an error before anything is removed. A file that
// has content and does not begin with an audit record is refused and left as it is.
func OpenAudit(path string, made Identity, count int, now time.Time) (*Audit, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_APPEND|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the audit file %s: %w", path, err)
	}
	a := &Audit{file: os.NewFile(uintptr(fd), path)}
	if err := a.begin(made, count, now); err != nil {
		return nil, errors.Join(fmt.Errorf("preparing the audit file %s: %w", path, err), a.file.Close())
	}
	return a, nil
}

func (a *Audit) begin(made Identity, count int, now time.Time) error {
	info, err := a.file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New("it is no regular file")
	}
	// The lock of the runtime does not keep runs on different runtimes from one file.
	if err := unix.Flock(int(a.file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("another run writes to it: %w", err)
	}
	if err := a.recognise(info.Size()); err != nil {
		return err
	}
	room := int64(count+2) * auditRecordSize
	err = unix.Fallocate(int(a.file.Fd()), unix.FALLOC_FL_KEEP_SIZE, info.Size(), room)
	// Some file systems cannot reserve space; there the first record shows that some is left.
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("setting %d bytes aside: %w", room, err)
	}
	if err := a.write(AuditRecord{At: now, Event: auditStart, PID: os.Getpid(), Made: &made, Count: count}); err != nil {
		return err
	}
	return syncDir(filepath.Dir(a.file.Name()))
}

// recognise refuses a file of another kind. Where a crash has cut the last line short, it ends that line, so that the
// records of this run are on lines of their own.
func (a *Audit) recognise(size int64) error {
	if size == 0 {
		return nil
	}
	line, err := bufio.NewReaderSize(io.NewSectionReader(a.file, 0, size), maxAuditLine).ReadSlice('\n')
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
		return err
	}
	var first AuditRecord
	if json.Unmarshal(line, &first) != nil || first.Event != auditStart && first.Event != auditRemoved &&
		first.Event != auditEnd {
		return errors.New("it is no audit file of kdiag, and is left as it is")
	}
	last := make([]byte, 1)
	if _, err := a.file.ReadAt(last, size-1); err != nil {
		return err
	}
	if last[0] != '\n' {
		_, err = a.file.WriteString("\n")
	}
	return err
}

// removed records that a candidate was removed, and returns once the record is on the disk.
func (a *Audit) removed(c *Candidate) error {
	return a.write(AuditRecord{At: time.Now(), Event: auditRemoved, Candidate: c})
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

// Close records the end of the run and returns the space that is left of what was reserved. removed is how many
// candidates were removed.
func (a *Audit) Close(removed int, now time.Time) error {
	err := a.write(AuditRecord{At: now, Event: auditEnd, Count: removed})
	if info, statErr := a.file.Stat(); statErr == nil && err == nil {
		err = a.file.Truncate(info.Size()) // frees the blocks beyond the end
	}
	return errors.Join(err, a.file.Close())
}

// syncDir makes the name of a new file durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
