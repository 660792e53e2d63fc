package host

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kdiag/kdiag/crictl/safefile"
)

const (
	// pingTime is how long a peer may take to answer. All are asked at once, and the reply of a child must come before
	// hangTimeout.
	pingTime = time.Second
	// maxPeers are the peers of one folder or file that are asked, maxUnanswered those of them that a reply has room
	// for: it is one read of a pipe.
	maxPeers      = 1000
	maxUnanswered = 20
	// maxConfig bounds containerd's configuration.
	maxConfig = 1 << 20
)

// What is sent to a peer. Its server answers without doing anything: gRPC by its settings, and ttrpc by an error, since
// there is no such service (a request on stream 1; the payload is {service: "kdiag"}, in protobuf).
const (
	greeting  = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	ttrpcPing = "\x00\x00\x00\x07" + "\x00\x00\x00\x01" + "\x01\x00" + "\x0a\x05kdiag"
)

// dialAll starts to ask the peers of every folder and configuration at once. The function that it returns waits for
// those of one.
func dialAll(base string, names []string) func(base, name string) reply {
	replies := map[string]chan reply{}
	for _, name := range names {
		done := make(chan reply, 1)
		replies[name] = done
		go func() { done <- dialIn(base, name) }()
	}
	return func(_, name string) reply { return <-replies[name] }
}

// dialIn asks the peers that a configuration names, or whose sockets are in a folder and the folders in it.
func dialIn(base, name string) (r reply) {
	var peers []Peer
	if strings.HasSuffix(name, ".toml") {
		text := allConfig(base, name)
		peers, r.CRIOff = parseProxies(text), criOff(name, text)
	} else {
		peers = socketsIn(base, name)
	}
	var all sync.WaitGroup
	for i := range peers {
		all.Go(func() { ping(base, &peers[i]) })
	}
	all.Wait()
	r.Asked = len(peers)
	peers = slices.DeleteFunc(peers, func(p Peer) bool {
		return p.Dial == "" || p.Kind != PeerProxy && p.Dial != DialSilent
	})
	r.Peers = peers[:min(len(peers), maxUnanswered)]
	return r
}

// socketsIn returns the sockets in a folder and in the folders in it, but for the kubelet's own.
func socketsIn(base, folder string) (peers []Peer) {
	kind := PeerKubelet
	switch {
	case folder == shimSockets:
		kind = PeerShim
	case filepath.Base(folder) == "device-plugins":
		kind = PeerDevice
	}
	inner, _ := os.ReadDir(filepath.Join(base, folder)) // one that does not exist has none
	for _, e := range inner {
		entries, dir := []fs.DirEntry{e}, folder
		if e.IsDir() {
			dir = filepath.Join(folder, e.Name())
			entries, _ = os.ReadDir(filepath.Join(base, dir))
		}
		for _, e := range entries {
			if e.Type() == fs.ModeSocket && e.Name() != "kubelet.sock" && len(peers) < maxPeers {
				path := filepath.Join(dir, e.Name())
				peers = append(peers, Peer{Kind: kind, Name: e.Name(), Path: path})
			}
		}
	}
	return peers
}

// allConfig returns the text of a configuration of containerd, and of those that it imports.
func allConfig(base, name string) string {
	text := readConfig(base, name)
	for _, pattern := range tomlStrings(text, "imports") {
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(name), pattern)
		}
		more, _ := filepath.Glob(filepath.Join(base, pattern)) // a pattern that is none matches nothing
		for _, file := range more[:min(len(more), maxUnanswered)] {
			text += "\n" + readConfig("/", file)
		}
	}
	return text
}

// criOff returns the line that disables the CRI plugin, with the file that has or imports it.
func criOff(name, text string) string {
	for line := range strings.Lines(text) {
		for _, plugin := range tomlStrings(line, "disabled_plugins") {
			if plugin == "cri" || strings.Contains(plugin, ".cri") {
				return name + " has " + strings.TrimSpace(line)
			}
		}
	}
	return ""
}

func readConfig(base, name string) string {
	f, err := safefile.Open(filepath.Join(base, name), os.O_RDONLY)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, _ := safefile.ReadAll(f, maxConfig)
	return string(text)
}

// tomlStrings returns the strings that a line assigns to a key: key = "a", key = ["a", 'b'].
func tomlStrings(text, key string) (all []string) {
	for line := range strings.Lines(text) {
		left, right, ok := strings.Cut(line, "=")
		if !ok || strings.TrimSpace(left) != key {
			continue
		}
		quoted := func(c rune) bool { return c == '"' || c == '\'' }
		for i, part := range strings.FieldsFunc(" "+right, quoted) {
			if i%2 == 1 {
				all = append(all, part)
			}
		}
	}
	return all
}

// parseProxies reads the proxy plugins of a configuration:
//
//	[proxy_plugins."soci"]
//	  type = "snapshot"
//	  address = "/run/soci-snapshotter-grpc/soci-snapshotter-grpc.sock"
func parseProxies(text string) (peers []Peer) {
	used := tomlStrings(text, "snapshotter")
	var name string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			header := strings.Trim(line, "[] \t")
			plugin, ok := strings.CutPrefix(header, "proxy_plugins.")
			name = ""
			if plugin = strings.Trim(plugin, `"'`); ok && !strings.ContainsAny(plugin, `"'`) {
				name, _, _ = strings.Cut(plugin, ".")
			}
		}
		address := tomlStrings(line, "address")
		if name == "" || len(address) == 0 || len(peers) == maxUnanswered {
			continue
		}
		path := strings.TrimPrefix(address[0], "unix://")
		if filepath.IsAbs(path) {
			peers = append(peers, Peer{Kind: PeerProxy, Name: name, Path: path, Default: slices.Contains(used, name)})
		}
	}
	return peers
}

// ping connects to a peer and waits for any byte, or for the end of the connection.
func ping(base string, p *Peer) {
	d := net.Dialer{Timeout: pingTime}
	conn, err := d.Dial("unix", filepath.Join(base, p.Path))
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		p.Dial = DialRefused
	case errors.Is(err, fs.ErrNotExist):
		p.Dial = DialMissing
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, os.ErrDeadlineExceeded):
		p.Dial = DialSilent
	}
	if err != nil {
		return // not allowed, or not a stream: nothing is known
	}
	defer conn.Close()
	p.PID = listenerOf(conn)
	text := greeting
	if p.Kind == PeerShim {
		text = ttrpcPing
	}
	_ = conn.SetDeadline(time.Now().Add(pingTime))
	_, err = conn.Write([]byte(text))
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		p.Dial = DialSilent
	}
}
