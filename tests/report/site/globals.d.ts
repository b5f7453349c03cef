// What the site's scripts find in each other and in asv's page: for `tsc` alone, see test_scripts.py.
interface Hpml {
    put(address: string, value: any): void;
    unpack(address: string, packed: string): void;
    read(address: string): Promise<any>;
    matcher(query: string, synonyms: Record<string, string>): (text: string) => boolean;
    on_key(key: string, field: HTMLInputElement): void;
}
interface Window {
    hpml: Hpml;
    jQuery: any;
    vegaEmbed: any;
}
declare const hpml: Hpml;
declare const vegaEmbed: any;
