package signature

import (
	"cmp"
	"strings"
)

// minID is the shortest id that is recognised by its form alone: the short form of docker.
const minID = 12

// staticUID is how long the uid of a static pod is: an MD5 sum in hexadecimal (applyDefaults in
// pkg/kubelet/config/common.go). No runtime gives ids of that length.
const staticUID = 32

// readObjects reads the container, sandbox and pod that a record names.
func readObjects(r *record, m *Match) {
	s := r.text
	m.ContainerID = containerID(field(s, "containerID"))
	m.SandboxID = keep(field(s, "podSandboxID"))
	m.PodUID = keep(cmp.Or(field(s, "podUID"), field(s, "podID")))
	m.Container = keep(field(s, "containerName"))
	readPodField(s, m)
	readFullName(s, m)
	for _, form := range [...]struct {
		mark  string // without it the form need not be tried
		known *string
		read  func(r *record, m *Match)
	}{
		{"PodSandboxMetadata", &m.Pod, readSandboxMetadata},
		{"RunPodSandbox for n", &m.Pod, readSandboxMetadata},
		{"ContainerMetadata", &m.Container, readContainerMetadata},
		{"reserv", nil, readReserved},
		{"PLEG: ", &m.Pod, readIgnored},
		{"rror syncing pod ", &m.PodUID, readSyncing},
		{"(UniqueName: ", &m.PodUID, readVolumePod},
	} {
		if (form.known == nil || *form.known == "") && strings.Contains(s, form.mark) {
			form.read(r, m)
		}
	}
	readLooseIDs(r, m)
}

// containerID reads an id as the kubelet prints it: bare, with the runtime in front (containerd://id), or as an object.
func containerID(v string) string {
	if strings.HasPrefix(v, "{") {
		v = field(v, "ID")
	}
	if _, id, ok := strings.Cut(v, "://"); ok {
		v = id
	}
	return keep(v)
}

// readPodField reads pod="namespace/name", pod="name_namespace(uid)" and pod={"name":"a","namespace":"b"}.
func readPodField(s string, m *Match) {
	v := field(s, "pod")
	if strings.HasPrefix(v, "{") {
		m.Pod, m.Namespace = keep(field(v, "name")), keep(field(v, "namespace"))
		return
	}
	if namespace, name, ok := strings.Cut(v, "/"); ok && !strings.Contains(name, "/") {
		m.Pod, m.Namespace = keep(name), keep(namespace)
	}
}

// readFullName reads name_namespace(uid), the kubelet's usual form of a pod in free text.
func readFullName(s string, m *Match) {
	for i := 0; i < len(s); i++ {
		if s[i] != '(' || i == 0 {
			continue
		}
		end := i + 1
		for end < len(s) && (isWord(s[end]) || s[end] == '-') {
			end++
		}
		begin := i
		for begin > 0 && i-begin <= maxName+64 && isNameByte(s[begin-1]) {
			begin--
		}
		name, namespace, ok := strings.Cut(s[begin:i], "_")
		closed := end < len(s) && s[end] == ')' && end-i >= 4
		if !ok || !closed || name == "" || namespace == "" || strings.Contains(namespace, "_") {
			continue
		}
		m.Pod, m.Namespace, m.PodUID = keep(name), keep(namespace), keep(s[i+1:end])
		return
	}
}

// isNameByte reports whether a byte may stand in a Kubernetes name, or joins two of them.
func isNameByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c == '.' || c == '-' || c == '_'
}

// readLooseIDs takes words that look like ids. The words before one decide what it is, otherwise the call.
func readLooseIDs(r *record, m *Match) {
	s := r.text
	const most = 16 // words looked at
	for i, n := 0, 0; i < len(s) && n < most && (m.ContainerID == "" || m.SandboxID == ""); {
		begin, end := nextID(s, i)
		if begin < 0 {
			return
		}
		i, n = end, n+1
		id := s[begin:end]
		if id == m.ContainerID || id == m.SandboxID || id == m.PodUID || len(id) == staticUID {
			continue
		}
		object := &m.ContainerID
		if ofSandbox(s[:begin], r) {
			object = &m.SandboxID
		}
		if *object == "" {
			*object = strings.Clone(id)
		}
	}
}

// nextID finds the next word of hexadecimal digits, with at least one letter unless it has a full id's 64.
func nextID(s string, from int) (begin, end int) {
	for i := from; i < len(s); {
		if !isWord(s[i]) && s[i] != '-' {
			i++
			continue
		}
		j, hex, letter := i, true, false
		for ; j < len(s) && (isWord(s[j]) || s[j] == '-'); j++ {
			isLetter := s[j] >= 'a' && s[j] <= 'f'
			letter = letter || isLetter
			hex = hex && (isLetter || isDigit(s[j]))
		}
		inPath := i > 0 && s[i-1] == '/' || j < len(s) && s[j] == '/'
		if n := j - i; hex && n >= minID && n <= 64 && (letter || n == 64) && !inPath {
			return i, j
		}
		i = j
	}
	return -1, -1
}

// ofSandbox reports whether an id names a sandbox and not a container, by the words before it and by the call.
func ofSandbox(before string, r *record) bool {
	const near = 40 // bytes before the id
	before = before[max(0, len(before)-near):]
	sandbox := strings.LastIndex(before, "andbox")
	container := max(strings.LastIndex(before, "ontainer"), strings.LastIndex(before, "ExecSync"))
	return sandbox > container || sandbox == container && strings.Contains(r.rpc(), "PodSandbox")
}
