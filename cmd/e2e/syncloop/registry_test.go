//go:build e2e

package syncloop

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/plegbench/syncloop"
)

const (
	registryUser = "AWS"
	password     = "s3cret:password"
	identity     = "s3cret-identity-token"
)

// A registry serves one image with busybox under every name, by the distribution API. Clients of the names below token
// exchange identity for a token; those of other names have a name and password.
type registry struct {
	*httptest.Server
	blobs    map[string][]byte // by digest
	manifest []byte
}

// newRegistry serves a registry with TLS on the loopback interface, and tells the runtime of it.
func newRegistry(t *testing.T, dir string) *registry {
	t.Helper()
	r := &registry{blobs: map[string][]byte{}}
	add := func(kind string, data []byte) map[string]any {
		digest := fmt.Sprintf("sha256:%x", sha256.Sum256(data))
		r.blobs[digest] = data
		return map[string]any{"mediaType": kind, "digest": digest, "size": len(data)}
	}
	layer := add("application/vnd.oci.image.layer.v1.tar", busyboxLayer(t))
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{"Env": []string{"PATH=/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []any{layer["digest"]}},
	})
	e2etest.Must(t, err)
	r.manifest, err = json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": add("application/vnd.oci.image.config.v1+json", config), "layers": []any{layer},
	})
	e2etest.Must(t, err)
	r.Server = httptest.NewUnstartedServer(r)
	r.Config.ErrorLog = log.New(io.Discard, "", 0) // the runtime tries plain HTTP when it was refused
	r.StartTLS()
	t.Cleanup(r.Close)
	at := filepath.Join(dir, r.host())
	block := &pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw}
	hosts := fmt.Sprintf("[host.%q]\nca = %q\n", r.URL, at+"/ca.pem")
	e2etest.Must(t, errors.Join(
		os.MkdirAll(at, 0o755), os.WriteFile(at+"/ca.pem", pem.EncodeToMemory(block), 0o644),
		os.WriteFile(at+"/hosts.toml", []byte(hosts), 0o644),
	))
	return r
}

func (r *registry) host() string { return r.Listener.Addr().String() }

func busyboxLayer(t *testing.T) []byte {
	t.Helper()
	binary, err := os.ReadFile("/bin/busybox")
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	err = errors.Join(err, w.WriteHeader(&tar.Header{Name: "bin/busybox", Mode: 0o755, Size: int64(len(binary))}))
	_, writeErr := w.Write(binary)
	err = errors.Join(err, writeErr)
	for _, name := range []string{"sh", "sleep"} {
		link := &tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + name, Linkname: "busybox", Mode: 0o777}
		err = errors.Join(err, w.WriteHeader(link))
	}
	e2etest.Must(t, errors.Join(err, w.Close()))
	return layer.Bytes()
}

func (r *registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	name, secret, _ := req.BasicAuth()
	if req.URL.Path == "/token" {
		if req.PostFormValue("refresh_token") != identity {
			http.Error(w, "unknown identity", http.StatusUnauthorized)
			return
		}
		_, _ = fmt.Fprint(w, `{"access_token": "access", "expires_in": 60}`)
		return
	}
	challenge, allowed := `Basic realm="r"`, name == registryUser && secret == password
	if strings.HasPrefix(req.URL.Path, "/v2/token/") {
		challenge = fmt.Sprintf("Bearer realm=%q,service=r", r.URL+"/token")
		allowed = req.Header.Get("Authorization") == "Bearer access"
	}
	last := filepath.Base(req.URL.Path)
	content, kind := r.blobs[last], "application/octet-stream"
	if filepath.Base(filepath.Dir(req.URL.Path)) == "manifests" {
		content, kind = r.manifest, "application/vnd.oci.image.manifest.v1+json"
	}
	switch {
	case !allowed:
		w.Header().Set("WWW-Authenticate", challenge)
		http.Error(w, "no", http.StatusUnauthorized)
	case content == nil:
		http.NotFound(w, req)
	default:
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		w.Header().Set("Docker-Content-Digest", fmt.Sprintf("sha256:%x", sha256.Sum256(content)))
		if req.Method != http.MethodHead {
			_, _ = w.Write(content)
		}
	}
}

// Images come from a registry that demands what the pods' pull secrets have: a name and password, or a token. No secret
// is in the log or in a trace.
func TestEndToEndPullSecrets(t *testing.T) {
	t.Parallel()
	n := newNode(t, 20)
	r := newRegistry(t, n.box.Registries())
	encoded := base64.StdEncoding.EncodeToString([]byte(registryUser + ":" + password))
	for name, login := range map[string][2]string{ // below the host, and what its owner gives
		"named": {"", fmt.Sprintf(`{"auth": %q}`, encoded)},
		"token": {"", fmt.Sprintf(`{"auth": "eDo=", "identitytoken": %q}`, identity)},
		"wrong": {"/team", `{"username": "AWS", "password": "s3cret-of-another"}`}, // tried first: its path is longer
	} {
		config := fmt.Sprintf(`{"auths": {%q: %s}}`, r.host()+login[0], login[1])
		data, err := json.Marshal(&v1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Type: v1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(config)},
		})
		e2etest.Must(t, err)
		n.write(n.cfg.Objects, name, data)
	}
	for image, secrets := range map[string][]string{
		"token/app": {"token"}, "team/second": {"lost", "wrong", "named"}, "team/refused": {"wrong"},
	} {
		p := newPod(filepath.Base(image), shell("c", forever))
		p.Spec.Containers[0].Image = r.host() + "/" + image
		for _, secret := range secrets {
			p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: secret})
		}
		n.apply(p)
	}
	n.cfg.Log = n.log.Logger(9)
	var trace []string
	n.cfg.Trace = syncloop.NewTrace(namespace+"/second", e2eNode, func(s syncloop.Step) { trace = append(trace, s.Text) })
	n.start()
	n.awaitReady("app", "second")
	n.event("second", "FailedToRetrieveImagePullSecret", "(lost)")
	n.awaitPod("the refusal", "refused", func(p *v1.Pod) bool {
		w := containerOf(p).State.Waiting
		return w != nil && strings.Contains(w.Message, "401 Unauthorized")
	})
	n.stop()
	text := strings.Join(append(n.log.Lines(""), trace...), "\n")
	for _, secret := range []string{password, identity, "s3cret", encoded} {
		if strings.Contains(text, secret) {
			t.Errorf("the log or the trace has %s", secret)
		}
	}
	if len(trace) < 10 {
		t.Errorf("the trace has %q", trace)
	}
}
