package crictl

import "strings"

// An interner makes the strings of one list. What repeats within it (pods, container names, sandbox ids) is stored
// once; everything is cut from a few large chunks instead of being allocated piece by piece. The chunks live as long as
// any string in them, which suits a list: its entries are kept or dropped together.
type interner struct {
	chunk     strings.Builder // never grown beyond its capacity, so that strings cut from it stay where they are
	names     map[string]string
	pods      map[string]*Pod // by UID
	slab      []Pod           // unused Pods, allocated together
	sandboxes map[string]sandboxRef
	none      *Pod // shared by all entries without a pod
}

// A sandboxRef is the one copy of a sandbox's id and the pod of the container that brought it, which is nearly always
// the pod of all the others too.
type sandboxRef struct {
	id  string
	pod *Pod
}

const (
	minChunk = 4 << 10
	maxChunk = 4 << 20
	podSlab  = 64
)

func newInterner() *interner {
	return &interner{
		names:     make(map[string]string),
		pods:      make(map[string]*Pod),
		sandboxes: make(map[string]sandboxRef),
		none:      &Pod{},
	}
}

// reserve prepares for about n more bytes of strings.
func (in *interner) reserve(n int) {
	if free := in.chunk.Cap() - in.chunk.Len(); free < n {
		in.newChunk(n)
	}
}

func (in *interner) newChunk(n int) {
	in.chunk = strings.Builder{}
	in.chunk.Grow(n)
}

// copy returns b as a string, cut from the chunk.
func (in *interner) copy(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if in.chunk.Cap()-in.chunk.Len() < len(b) {
		in.newChunk(max(len(b), min(max(2*in.chunk.Cap(), minChunk), maxChunk)))
	}
	start := in.chunk.Len()
	in.chunk.Write(b)
	return in.chunk.String()[start:]
}

// name returns the one copy of a string that repeats.
func (in *interner) name(b []byte) string {
	if s, ok := in.names[string(b)]; ok {
		return s
	}
	s := in.copy(b)
	in.names[s] = s
	return s
}

// pod returns the one Pod of these facts. A UID that comes with two names, which no kubelet makes, gives a Pod each
// time.
func (in *interner) pod(namespace, name, uid []byte) *Pod {
	if len(namespace) == 0 && len(name) == 0 && len(uid) == 0 {
		return in.none
	}
	known, ok := in.pods[string(uid)]
	if ok && known.is(namespace, name, uid) {
		return known
	}
	if len(in.slab) == 0 {
		in.slab = make([]Pod, podSlab)
	}
	p := &in.slab[0]
	in.slab = in.slab[1:]
	*p = Pod{Namespace: in.name(namespace), Name: in.copy(name), UID: in.copy(uid)}
	if !ok {
		in.pods[p.UID] = p
	}
	return p
}

func (p *Pod) is(namespace, name, uid []byte) bool {
	return p.UID == string(uid) && p.Name == string(name) && p.Namespace == string(namespace)
}

// sandbox returns the one copy of a sandbox's id, and the Pod of the container that names it.
func (in *interner) sandbox(id, namespace, name, uid []byte) (string, *Pod) {
	ref, ok := in.sandboxes[string(id)]
	if ok && ref.pod.is(namespace, name, uid) {
		return ref.id, ref.pod
	}
	p := in.pod(namespace, name, uid)
	if !ok {
		ref = sandboxRef{id: in.copy(id), pod: p}
		in.sandboxes[ref.id] = ref
	}
	return ref.id, p
}
