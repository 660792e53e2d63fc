package archive

import (
	"cmp"
	"crypto/x509"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks/upload"
	"github.com/kdiag/kdiag/cmd/internal/cli"
)

// UploadFlags say where archives are sent.
type UploadFlags struct{ URL, Method, Headers, CA string }

// AddUpload adds the flags.
func (u *UploadFlags) AddUpload(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&u.URL, "upload", "",
		"send archives to this URL, or to that in @FILE; may have {node}, {time} and {cause}")
	fs.StringVar(&u.Method, "upload-method", http.MethodPut, "PUT or POST")
	fs.StringVar(&u.Headers, "upload-headers", "", "file with headers of the upload, one NAME: VALUE a line")
	fs.StringVar(&u.CA, "upload-ca", "", "file with the certificates of authorities that the server's may have")
}

// CheckUpload returns an error of bad flags.
func (u *UploadFlags) CheckUpload(cmd *cobra.Command) error {
	for _, flag := range []string{"upload-method", "upload-headers", "upload-ca"} {
		if u.URL == "" && cmd.Flags().Changed(flag) {
			return cli.Usage("--"+flag+" is for --upload", "add --upload URL")
		}
	}
	return cmp.Or(
		cli.RejectEmpty(cmd, "upload", "upload-headers", "upload-ca"),
		cli.OneOf(cmd, "upload-method", u.Method, []string{http.MethodPut, http.MethodPost}),
	)
}

// hostAuthorities are where distributions keep the certificates of authorities (certFiles in
// crypto/x509/root_linux.go).
var hostAuthorities = []string{
	"etc/ssl/certs/ca-certificates.crt", "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "etc/ssl/ca-bundle.pem",
	"etc/pki/tls/certs/ca-bundle.crt", "etc/pki/tls/cacert.pem", "etc/ssl/cert.pem",
}

// authorities returns --upload-ca; else, where this process sees none, as in an image with nothing but kdiag, those of
// the host.
func (u *UploadFlags) authorities(root string) string {
	own, err := x509.SystemCertPool()
	if u.CA != "" || err == nil && !own.Equal(x509.NewCertPool()) {
		return u.CA
	}
	i := slices.IndexFunc(hostAuthorities, func(name string) bool {
		info, err := cli.Look(name, func() (fs.FileInfo, error) { return os.Stat(filepath.Join(root, name)) })
		return err == nil && info.Mode().IsRegular()
	})
	if i < 0 {
		return ""
	}
	return filepath.Join(root, hostAuthorities[i])
}

// UploadTarget returns where archives are sent; nil without --upload. It reads the files that the flags name.
func (u *UploadFlags) UploadTarget(env cli.Env) (*upload.Target, error) {
	if u.URL == "" {
		return nil, nil
	}
	t, err := upload.New(upload.Options{
		URL: u.URL, Method: u.Method, Headers: u.Headers, CA: u.authorities(env.Root), ReadFile: cli.ReadFile,
	})
	if err != nil {
		return nil, cli.Usage("--upload: "+strings.TrimPrefix(err.Error(), "open "),
			"for example --upload 'https://logs.example.com/kdiag/{node}/{time}-{cause}.tar.zst'")
	}
	return t, nil
}
