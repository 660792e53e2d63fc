package gc

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// What a plan file calls itself.
const (
	planAPIVersion = "kdiag/v1"
	planKind       = "GCPlan"
)

// maxPlanFile bounds a plan file in bytes. A victim takes about 500, so that is more than 200,000 of them.
const maxPlanFile = 128 << 20

// An Identity says of which runtime on which node, and since which boot, a plan was made.
type Identity struct {
	MachineID      string `json:"machineID"` // /etc/machine-id
	BootID         string `json:"bootID"`    // /proc/sys/kernel/random/boot_id
	Endpoint       string `json:"endpoint"`
	RuntimeName    string `json:"runtimeName"`
	RuntimeVersion string `json:"runtimeVersion"`
}

// A PlanFile is a plan as it is kept for later.
type PlanFile struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	CreatedAt  time.Time `json:"createdAt"`
	Made       Identity  `json:"made"`
	Plan       Plan      `json:"plan"`
}

// A sealedFile is the form on the disk: the digest is that of the content with insignificant white space taken out. It
// finds edits and damage. It does not stop somebody who can compute a SHA-256, which is why every victim is looked at
// again before it is removed.
type sealedFile struct {
	Digest  string          `json:"digest"`
	Content json.RawMessage `json:"content"`
}

// An EditedError says that a plan file is not as it was written.
type EditedError struct{ Detail string }

func (e *EditedError) Error() string {
	return "the plan file was changed after it was written (" + e.Detail + "); make a new plan"
}

// A NodeError says that a plan was made on another node.
type NodeError struct{ Plan, Here string }

func (e *NodeError) Error() string {
	return fmt.Sprintf("the plan was made on another node: machine id %s there, %s here", e.Plan, e.Here)
}

// A BootError says that the node was booted since a plan was made.
type BootError struct{ Plan, Here string }

func (e *BootError) Error() string {
	return fmt.Sprintf("the node has booted since the plan was made: boot id %s then, %s now; make a new plan", e.Plan, e.Here)
}

// An EndpointError says that a plan was made for another runtime. The runtime's version may have changed since.
type EndpointError struct{ Plan, Here string }

func (e *EndpointError) Error() string {
	return fmt.Sprintf("the plan was made for another runtime: %s there, %s here", e.Plan, e.Here)
}

// WritePlan writes a plan file.
func WritePlan(w io.Writer, plan Plan, made Identity, now time.Time) error {
	if made.MachineID == "" || made.BootID == "" || made.Endpoint == "" {
		return errors.New("writing the plan: the node's machine id, boot id or endpoint is not known, so it could not be checked later")
	}
	content, err := json.Marshal(PlanFile{APIVersion: planAPIVersion, Kind: planKind, CreatedAt: now, Made: made, Plan: plan})
	if err != nil {
		return fmt.Errorf("writing the plan: %w", err)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	if err := enc.Encode(sealedFile{Digest: digest(content), Content: content}); err != nil {
		return fmt.Errorf("writing the plan: %w", err)
	}
	return nil
}

// ReadPlan reads a plan file and checks that it is as it was written and belongs here. The error may be an *EditedError,
// *NodeError, *BootError or *EndpointError. The plan must still go through Narrow.
func ReadPlan(r io.Reader, here Identity) (*PlanFile, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxPlanFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading the plan: %w", err)
	}
	if len(text) > maxPlanFile {
		return nil, fmt.Errorf("reading the plan: it is larger than %d bytes", maxPlanFile)
	}
	file, err := unseal(text)
	if err != nil {
		return nil, err
	}
	switch {
	case file.APIVersion != planAPIVersion || file.Kind != planKind:
		return nil, fmt.Errorf("reading the plan: it is %q %q, not %q %q", file.APIVersion, file.Kind, planAPIVersion, planKind)
	case file.Made.MachineID == "" || file.Made.MachineID != here.MachineID:
		return nil, &NodeError{Plan: file.Made.MachineID, Here: here.MachineID}
	case file.Made.BootID == "" || file.Made.BootID != here.BootID:
		return nil, &BootError{Plan: file.Made.BootID, Here: here.BootID}
	case file.Made.Endpoint == "" || file.Made.Endpoint != here.Endpoint || file.Made.RuntimeName != here.RuntimeName:
		return nil, &EndpointError{
			Plan: file.Made.RuntimeName + " at " + file.Made.Endpoint, Here: here.RuntimeName + " at " + here.Endpoint,
		}
	}
	return file, checkVictims(file.Plan.Remove)
}

func unseal(text []byte) (*PlanFile, error) {
	var sealed sealedFile
	if err := json.Unmarshal(text, &sealed); err != nil {
		return nil, fmt.Errorf("reading the plan: not a plan file: %w", err)
	}
	if sealed.Digest == "" || len(sealed.Content) == 0 {
		return nil, errors.New("reading the plan: not a plan file: it has no digest or no content")
	}
	var content bytes.Buffer
	if err := json.Compact(&content, sealed.Content); err != nil {
		return nil, fmt.Errorf("reading the plan: %w", err)
	}
	if got := digest(content.Bytes()); got != sealed.Digest {
		return nil, &EditedError{Detail: "its content gives " + shorten(got) + ", it says " + shorten(sealed.Digest)}
	}
	var file PlanFile
	if err := json.Unmarshal(content.Bytes(), &file); err != nil {
		return nil, fmt.Errorf("reading the plan: %w", err)
	}
	return &file, nil
}

// checkVictims refuses what Make never writes.
func checkVictims(victims []Victim) error {
	for i := range victims {
		v := &victims[i]
		if v.ID == "" || v.PodUID == "" || v.CreatedAt.IsZero() || v.Kind != KindSandbox && (v.Kind != KindContainer || v.Container == "") {
			return &EditedError{Detail: fmt.Sprintf("victim %d is not one that is ever planned", i+1)}
		}
	}
	return nil
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// shorten cuts what may be hostile text to the length of a digest's beginning.
func shorten(s string) string {
	const most = 19 // "sha256:" and 12 digits
	if len(s) > most {
		return fmt.Sprintf("%.19q...", s)
	}
	return fmt.Sprintf("%q", s)
}
