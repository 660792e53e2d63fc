package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// ErrNoSystemd is the error where the host is run by something else.
var ErrNoSystemd = errors.New("systemd does not run this host")

const (
	// answerTimeout is for the first answer. A systemd that is well answers within milliseconds; runc, which waits
	// without end (opencontainers/runc#3904), holds up a pod as long as that takes.
	answerTimeout = 5 * time.Second
	// leastHang is how long a connection that the end of the command cuts short must have had no answer to hang.
	leastHang = time.Second
	// answersTimeout is for all answers that follow.
	answersTimeout = 10 * time.Second
	// maxListed bounds the units that are listed, at about 300 bytes each. Twenty thousand are a leak by their number
	// alone; a node has hundreds.
	maxListed = 20_000
)

// Systemd is the state of the service manager, asked over D-Bus.
type Systemd struct {
	Answered bool
	Took     time.Duration // until its first answer
	Hung     bool          // no answer in time

	// The same over the system bus, which runc and the kubelet ask by. Where systemd answers on its own socket and not
	// there, the message bus hangs. Both are false where there is no bus.
	BusAnswered bool
	BusHung     bool

	Version  string
	State    string // running, degraded, starting, ...
	Units    int    // names loaded
	Counted  bool   // Scopes and Inactive are known: not where there are too many units to list
	Scopes   int    // of them, scopes: containers, under the systemd cgroup driver
	Inactive int    // loaded, inactive and dead: left over where systemd leaks
	Jobs     int
	Kubelet  *Unit // nil when there is none
	Runtime  *Unit
}

// A Unit is a service.
type Unit struct {
	Name       string    // kubelet.service
	Load       string    // loaded, not-found, masked, ...
	Active     string    // active, activating, failed, inactive
	Sub        string    // running, auto-restart, dead, ...
	Result     string    // success, exit-code, watchdog, oom-kill, start-limit-hit, ...
	Since      time.Time // of the state; zero when not known
	Restarts   int
	ExitStatus int    // of the last main process
	Enabled    string // UnitFileState
	// Lacks is what it requires and systemd could not start, such as a mount; nil while the unit itself runs.
	Lacks *Unit `json:",omitempty"`
}

// FindSystemd returns ErrNoSystemd where another manager runs the host, and nil where systemd does.
func FindSystemd(root string) error {
	// sd_booted(3) goes by this folder.
	if _, err := os.Stat(filepath.Join(root, "run/systemd/system")); errors.Is(err, fs.ErrNotExist) {
		return ErrNoSystemd
	}
	return nil
}

// AskSystemd asks the service manager for its state, over its own socket, which needs root and no message bus, and
// over the system bus. Of each list of units it describes the one that this host uses. That nothing answers in time
// is a result and no error. Where another manager runs the host, the error is ErrNoSystemd.
func AskSystemd(ctx context.Context, root string, kubeletUnits, runtimeUnits []string) (Systemd, error) {
	if err := FindSystemd(root); err != nil {
		return Systemd{}, err
	}
	private := newConn(ctx, filepath.Join(root, "run/systemd/private"), false)
	defer private.close()
	bus := newConn(ctx, filepath.Join(root, "run/dbus/system_bus_socket"), true)
	defer bus.close()
	var both sync.WaitGroup
	both.Go(private.open)
	both.Go(bus.open)
	both.Wait()
	s, c := compareConns(private, bus)
	switch {
	case s.Answered:
		err := c.describe(&s, kubeletUnits, runtimeUnits)
		return s, err
	case s.Hung:
		return s, nil
	}
	return s, fmt.Errorf("asking systemd: %w", errors.Join(ctx.Err(), private.err, bus.err))
}

// compareConns returns the state of systemd by the two connections, and which of them to go on with.
func compareConns(private, bus *conn) (Systemd, *conn) {
	c := private
	if !private.answered && (bus.answered || bus.took > private.took) {
		c = bus
	}
	return Systemd{
		Answered: private.answered || bus.answered, BusAnswered: bus.answered, BusHung: bus.hung,
		Hung: private.hung || !private.answered && bus.hung,
		Took: c.took, Version: c.version,
	}, c
}

// A conn is a connection to systemd. It is closed with its context, which ends every call that waits for an answer.
type conn struct {
	*systemd.Conn
	socket string
	bus    bool
	ctx    context.Context
	close  context.CancelFunc

	answered, hung bool
	took           time.Duration
	version        string
	err            error
}

func newConn(ctx context.Context, socket string, bus bool) *conn {
	c := &conn{socket: socket, bus: bus}
	c.ctx, c.close = context.WithCancel(ctx)
	return c
}

// open connects and asks for the version.
func (c *conn) open() {
	began := time.Now()
	late := time.AfterFunc(answerTimeout, c.close)
	defer late.Stop()
	c.Conn, c.err = systemd.NewConnection(c.dial)
	if c.err == nil {
		c.version, c.err = c.property("Version")
	}
	c.took = time.Since(began)
	c.answered = c.err == nil
	// On a socket whose queue of connections is full nobody accepts them.
	c.hung = !c.answered && (c.ctx.Err() != nil && c.took >= leastHang || errors.Is(c.err, syscall.EAGAIN))
}

func (c *conn) dial() (*dbus.Conn, error) {
	// A path may hold what separates the parts of an address.
	conn, err := dbus.Dial("unix:path="+dbus.EscapeBusAddressValue(c.socket), dbus.WithContext(c.ctx))
	if err != nil {
		return nil, err
	}
	// The number of the user, since looking up its name could ask a directory on the network.
	err = conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Getuid()))})
	if err == nil && c.bus { // systemd's own socket has no Hello
		err = conn.Hello()
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("authenticating on %s: %w", c.socket, err)
	}
	return conn, nil
}

// property returns a property of the manager: a string, or a number in digits. The library returns the text format of
// GVariant, "252" in quotes or @u 42.
func (c *conn) property(name string) (string, error) {
	text, err := c.GetManagerProperty(name)
	if err != nil {
		return "", fmt.Errorf("asking systemd for %s: %w", name, err)
	}
	if s, err := strconv.Unquote(text); err == nil {
		return short(s), nil
	}
	return short(text[strings.LastIndexByte(text, ' ')+1:]), nil
}

func (c *conn) describe(s *Systemd, kubeletUnits, runtimeUnits []string) error {
	late := time.AfterFunc(answersTimeout, c.close)
	defer late.Stop()
	err := c.count(s)
	if err == nil {
		s.Kubelet, err = c.inUse(kubeletUnits)
	}
	if err == nil {
		s.Runtime, err = c.inUse(runtimeUnits)
	}
	return err
}

func (c *conn) count(s *Systemd) error {
	state, err := c.property("SystemState")
	units, errUnits := c.property("NNames")
	jobs, errJobs := c.property("NJobs")
	if err := errors.Join(err, errUnits, errJobs); err != nil {
		return err
	}
	s.State = state
	s.Units, _ = strconv.Atoi(units)
	s.Jobs, _ = strconv.Atoi(jobs)
	if s.Units > maxListed {
		return nil
	}
	list, err := c.ListUnitsContext(c.ctx)
	if err != nil {
		return fmt.Errorf("listing systemd's units: %w", err)
	}
	s.Counted = true
	for _, u := range list {
		if strings.HasSuffix(u.Name, ".scope") {
			s.Scopes++
		}
		// Where transient units leak, these pile up (systemd before 247).
		if u.LoadState == "loaded" && u.ActiveState == "inactive" && u.SubState == "dead" {
			s.Inactive++
		}
	}
	return nil
}

// inUse describes that of the units which this host uses: several may be installed, as the server's and the agent's
// of RKE2 are.
func (c *conn) inUse(names []string) (*Unit, error) {
	var best *Unit
	var requires []string
	for _, name := range names {
		properties, err := c.GetUnitPropertiesContext(c.ctx, name)
		if err != nil {
			return nil, fmt.Errorf("asking systemd for %s: %w", name, err)
		}
		if properties["LoadState"] == "not-found" {
			continue
		}
		// One by one, since a service's environment and command line are properties too.
		for _, of := range []string{"Result", "NRestarts", "ExecMainStatus"} {
			p, err := c.GetServicePropertyContext(c.ctx, name, of)
			if err != nil {
				return nil, fmt.Errorf("asking systemd for %s of %s: %w", of, name, err)
			}
			properties[of] = p.Value.Value()
		}
		if unit := newUnit(name, properties); best == nil || unit.idleness() < best.idleness() {
			best, requires = &unit, required(properties)
		}
	}
	if best != nil && (best.Active == "failed" || best.Active == "inactive") {
		best.Lacks = c.lacking(requires, maxDepth)
	}
	return best, nil
}

// maxDepth bounds the units that require one another: a service, its mount, and the device of that.
const maxDepth = 3

// required returns the units without which a unit does not start.
func required(properties map[string]any) (names []string) {
	for _, kind := range []string{"BindsTo", "Requires", "Requisite"} {
		list, _ := properties[kind].([]string)
		names = append(names, list...)
	}
	return names
}

// lacking returns the first of some units that could not be started, with the unit that this one lacks; nil without
// one. A unit that is inactive may have done its work, or be started with the unit, unless it is a device or lacks
// something itself.
func (c *conn) lacking(names []string, depth int) *Unit {
	for _, name := range names {
		properties, err := c.GetUnitPropertiesContext(c.ctx, name)
		if err != nil || depth == 0 {
			return nil
		}
		active, kind := properties["ActiveState"], strings.TrimPrefix(filepath.Ext(name), ".")
		if active != "failed" && active != "inactive" || kind == "" {
			continue
		}
		p, err := c.GetUnitTypePropertyContext(c.ctx, name, strings.ToUpper(kind[:1])+kind[1:], "Result")
		if err == nil { // a device has none
			properties["Result"] = p.Value.Value()
		}
		u := newUnit(name, properties)
		if u.Lacks = c.lacking(required(properties), depth-1); active == "failed" || kind == "device" || u.Lacks != nil {
			return &u
		}
	}
	return nil
}

// newUnit makes a Unit of the properties (org.freedesktop.systemd1(5)). What is missing or of another type stays empty.
func newUnit(name string, properties map[string]any) Unit {
	text := func(name string) string {
		s, _ := properties[name].(string)
		return short(s)
	}
	u := Unit{
		Name: name, Load: text("LoadState"), Active: text("ActiveState"), Sub: text("SubState"), Result: text("Result"),
		Enabled: text("UnitFileState"),
	}
	if since, _ := properties["StateChangeTimestamp"].(uint64); since > 0 && since < math.MaxInt64 {
		u.Since = time.UnixMicro(int64(since))
	}
	restarts, _ := properties["NRestarts"].(uint32)
	exitStatus, _ := properties["ExecMainStatus"].(int32)
	u.Restarts, u.ExitStatus = int(restarts), int(exitStatus)
	return u
}

// idleness ranks units for the same purpose: the lower, the more likely it is this host's. One that runs, or is about
// to, comes before one that failed, one that starts at boot, one that is only installed, and one that is masked.
func (u *Unit) idleness() int {
	switch {
	case u.Load != "loaded":
		return 4
	case u.Active == "failed":
		return 1
	case u.Active != "inactive":
		return 0
	case u.Enabled == "enabled":
		return 2
	}
	return 3
}

// short bounds a text of another process.
func short(s string) string { return strings.ToValidUTF8(s[:min(len(s), 128)], "") }
