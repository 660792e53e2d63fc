package fake

// Running calls f for each running container, in the order of their creation, with what the name of its log in
// /var/log/containers states on a real host. Latencies and faults of the scenario do not apply.
func (s *Server) Running(f func(id, name, namespace, pod, podUID string)) {
	s.store.mu.RLock()
	defer s.store.mu.RUnlock()
	for c := range s.store.containers.all() {
		if meta := c.sandbox.meta; c.running() {
			f(c.id, c.name, meta.GetNamespace(), meta.GetName(), meta.GetUid())
		}
	}
}
