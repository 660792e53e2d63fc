package gc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// The type of a plan file.
const (
	planAPIVersion = "kdiag/v1"
	planKind       = "GCPlan"
)

// maxPlanFile is the largest plan file in bytes. A candidate takes about 500, so that is more than 200,000 of them.
const maxPlanFile = 128 << 20

// An Identity names the runtime, the node and the boot for which a plan was made.
type Identity struct {
	MachineID      string `json:"machineID"` // /etc/machine-id
	BootID         string `json:"bootID"`    // /proc/sys/kernel/random/boot_id
	Endpoint       string `json:"endpoint"`
	RuntimeName    string `json:"runtimeName"`
	RuntimeVersion string `json:"runtimeVersion"` // informative: an upgrade does not make a plan invalid
}

// A PlanFile is a plan as it is stored for later.
type PlanFile struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	CreatedAt  time.Time `json:"createdAt"`
	Made       Identity  `json:"made"`
	Plan       Plan      `json:"plan"`
}

// WritePlan writes a plan file.
func WritePlan(w io.Writer, plan Plan, made Identity, now time.Time) error {
	if made.MachineID == "" || made.BootID == "" || made.Endpoint == "" {
		return errors.New("writing the plan: the node's machine id, boot id or endpoint is unknown")
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	return enc.Encode(PlanFile{APIVersion: planAPIVersion, Kind: planKind, CreatedAt: now, Made: made, Plan: plan})
}

// ReadPlan reads a plan file, and fails if it was made for another node, boot or runtime. The plan must still be
// narrowed by one made now, see Narrow: the file may have been edited.
func ReadPlan(r io.Reader, here Identity) (*PlanFile, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxPlanFile))
	if err != nil {
		return nil, fmt.Errorf("reading the plan: %w", err)
	}
	var file PlanFile
	err = json.Unmarshal(text, &file)
	if err == nil && (file.APIVersion != planAPIVersion || file.Kind != planKind) {
		err = fmt.Errorf("it is %q %q", file.APIVersion, file.Kind)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the plan: not a plan file: %w", err)
	}
	made := file.Made
	made.RuntimeVersion = here.RuntimeVersion
	switch {
	case made.MachineID == "" || made.BootID == "" || made.Endpoint == "" || made.MachineID != here.MachineID:
		return nil, fmt.Errorf("the plan was made on another node: machine id %q", made.MachineID)
	case made.BootID != here.BootID:
		return nil, errors.New("the node has booted since the plan was made; make a new plan")
	case made != here:
		return nil, fmt.Errorf("the plan was made for another runtime: %s at %s", made.RuntimeName, made.Endpoint)
	}
	return &file, nil
}
